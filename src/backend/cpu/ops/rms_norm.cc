#include "backend/cpu/ops/rms_norm.h"

#include <cmath>

namespace stof::cpu {

void rms_norm(const float* x, std::int64_t rows, std::int64_t width, const float* gamma,
              float epsilon, float* y) {
#pragma omp parallel for schedule(static) if (rows > 8)
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * width;
    float* to = y + r * width;
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += double{from[i]} * double{from[i]};
    const auto scale =
        static_cast<float>(1 / std::sqrt(squares / static_cast<double>(width) + epsilon));
    for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] * scale * gamma[i];
  }
}

}  // namespace stof::cpu
