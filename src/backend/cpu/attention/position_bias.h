#pragma once
// Relative position buckets (T5: Raffel et al. 2020, arXiv 1910.10683, section 2.1), and their
// table spread over the distances of a problem: a bias whose value at (query, key) depends on key -
// query is one row of values per head, read with a query stride of -1 and a key stride of 1.

#include <cstdint>
#include <vector>

#include "stof/attention.h"

namespace stof::cpu {

/// The bucket of a distance, key - query.
std::int64_t position_bucket(const PositionBias& rule, std::int64_t distance);

/// Distances first .. first + count - 1.
struct Distances {
  std::int64_t first = 0, count = 0;
};
/// Of all pairs of a problem, its alignment included.
Distances distances_of(const AttentionProblem& problem);

/// [heads][count]: the table's value of every head and distance.
std::vector<float> spread_position_bias(const AttentionProblem& problem, const TensorView& table,
                                        const Distances& distances);

/// Element (query 0, key 0) of a problem in a row of spread values.
std::int64_t origin_of(const AttentionProblem& problem, const Distances& distances);

}  // namespace stof::cpu
