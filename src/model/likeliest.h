#pragma once
// The likeliest of many, by their scores.

#include <cstdint>
#include <span>
#include <vector>

namespace stof::model {

struct Scored {
  std::int32_t id;
  float probability;
};

/// The `count` likeliest, or all where there are fewer, under the softmax of their scores; of equal
/// ones the lower id first. Throws Unsupported for scores that are not finite.
std::vector<Scored> likeliest(std::span<const float> scores, std::int64_t count);

}  // namespace stof::model
