#pragma once
// Joining softmax states over disjoint key sets.

#include <cstdint>

namespace stof::cpu {

/// Weights of two states (LSE a and b, natural log) in their union, and its LSE. An empty state
/// (-inf) weighs 0; two empty ones give weights 0 and -inf, never NaN.
struct MergeWeights {
  float a, b, lse;
};
MergeWeights merge_weights(float lse_a, float lse_b);

}  // namespace stof::cpu
