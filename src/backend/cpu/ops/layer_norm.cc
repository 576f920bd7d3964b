#include "backend/cpu/ops/layer_norm.h"

#include <cmath>

namespace stof::cpu {

void LayerNorm::row(const float* x, float* y) const {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(width);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float inverse = 1.f / std::sqrt(squares / static_cast<float>(width) + epsilon);
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
}

void LayerNorm::rows(float* x, std::int64_t num_rows) const {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < num_rows; ++r) row(x + r * width, x + r * width);
}

}  // namespace stof::cpu
