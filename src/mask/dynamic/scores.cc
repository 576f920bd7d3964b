#include <algorithm>

#include "core/bits.h"
#include "mask/dynamic/head.h"

namespace stof::mask {

float score_of(const float* a, const float* b, std::int64_t dim, float scale) {
  double sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) sum += double{a[d]} * double{b[d]};
  return static_cast<float>(double{scale} * sum);
}

KeyPanels::KeyPanels(const FloatRows& keys)
    : dim_(keys.dim), padded_(ceil_div(keys.rows, kWidth) * kWidth) {
  panels_.resize(static_cast<std::size_t>(padded_ * dim_));
  for (std::int64_t k = 0; k < keys.rows; ++k) {
    float* const panel = panels_.data() + k / kWidth * kWidth * dim_ + k % kWidth;
    for (std::int64_t d = 0; d < dim_; ++d) panel[d * kWidth] = keys.row(k)[d];
  }
}

void KeyPanels::scores(const float* query, float scale, float* scores) const {
  for (std::int64_t first = 0; first < padded_; first += kWidth) {
    const float* panel = panels_.data() + first * dim_;
    double sums[kWidth] = {};
    for (std::int64_t d = 0; d < dim_; ++d, panel += kWidth) {
      const double factor = query[d];
      for (std::int64_t i = 0; i < kWidth; ++i) sums[i] += factor * double{panel[i]};
    }
    for (std::int64_t i = 0; i < kWidth; ++i)
      scores[first + i] = static_cast<float>(double{scale} * sums[i]);
  }
}

}  // namespace stof::mask
