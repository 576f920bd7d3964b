#include "backend/cpu/ops/pooling.h"

#include <algorithm>
#include <cmath>

namespace stof::cpu {

void pool_rows(Pooling pooling, const float* x, std::int64_t rows, std::int64_t width, float* out) {
  std::copy(x, x + width, out);
  if (pooling == Pooling::kCls) return;
  for (std::int64_t r = 1; r < rows; ++r) {
    const float* row = x + r * width;
    if (pooling == Pooling::kMax) {
      for (std::int64_t i = 0; i < width; ++i) out[i] = std::max(out[i], row[i]);
    } else {
      for (std::int64_t i = 0; i < width; ++i) out[i] += row[i];
    }
  }
  if (pooling == Pooling::kMean)
    for (std::int64_t i = 0; i < width; ++i) out[i] /= static_cast<float>(rows);
}

void normalize_l2(float* x, std::int64_t width) {
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(1.0 / std::max(std::sqrt(squares), 1e-12));
  for (std::int64_t i = 0; i < width; ++i) x[i] *= scale;
}

}  // namespace stof::cpu
