#include "backend/cpu/attention/position_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backend/cpu/attention/element.h"
#include "backend/cpu/attention/problem.h"

namespace stof::cpu {

std::int64_t position_bucket(const PositionBias& rule, std::int64_t distance) {
  // Keys after the query have the upper half of the buckets; where they cannot be seen (causal
  // models) they share the bucket of distance 0.
  const std::int64_t buckets = rule.bidirectional ? rule.num_buckets / 2 : rule.num_buckets;
  const std::int64_t side = rule.bidirectional && distance > 0 ? buckets : 0;
  const std::int64_t apart =
      rule.bidirectional ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  // The first half of them are single distances, the others grow with their logarithm.
  const std::int64_t exact = buckets / 2;
  if (apart < exact) return side + apart;
  const double ratio =
      std::log(static_cast<double>(apart) / static_cast<double>(exact)) /
      std::log(static_cast<double>(rule.max_distance) / static_cast<double>(exact));
  const auto beyond = static_cast<std::int64_t>(ratio * static_cast<double>(buckets - exact));
  return side + std::min(exact + beyond, buckets - 1);
}

Distances distances_of(const AttentionProblem& problem) {
  if (problem.seq_q == 0 || problem.seq_kv == 0) return {};
  return {1 - problem.seq_q - position_offset(problem), problem.seq_q + problem.seq_kv - 1};
}

std::vector<float> spread_position_bias(const AttentionProblem& problem, const TensorView& table,
                                        const Distances& distances) {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(problem.num_heads_q * distances.count));
  for (std::int64_t h = 0; h < problem.num_heads_q; ++h)
    for (std::int64_t i = 0; i < distances.count; ++i)
      values.push_back(static_cast<float>(
          load_element(table, {position_bucket(problem.position_bias, distances.first + i), h})));
  return values;
}

std::int64_t origin_of(const AttentionProblem& problem, const Distances& distances) {
  return -position_offset(problem) - distances.first;
}

}  // namespace stof::cpu
