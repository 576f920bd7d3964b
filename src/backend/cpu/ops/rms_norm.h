#pragma once
// Root mean square normalisation.

#include <cstdint>

namespace stof::cpu {

/// y = x / sqrt(mean of squares + epsilon) * gamma, for each of [rows, width]; x may be y. gamma:
/// [width]. Statistics in double.
void rms_norm(const float* x, std::int64_t rows, std::int64_t width, const float* gamma,
              float epsilon, float* y);

}  // namespace stof::cpu
