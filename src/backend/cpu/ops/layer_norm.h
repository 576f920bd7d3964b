#pragma once
// Layer normalisation.

#include <cstdint>

namespace stof::cpu {

struct LayerNorm {
  const float* gamma;  ///< [width]
  const float* beta;   ///< [width]
  std::int64_t width;
  float epsilon;

  /// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta over one row; x may be y. Statistics
  /// in float32, variance from the centred values, so that a large mean does not cancel.
  void row(const float* x, float* y) const;

  /// In place over [rows, width].
  void rows(float* x, std::int64_t num_rows) const;
};

}  // namespace stof::cpu
