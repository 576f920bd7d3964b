#include "backend/cpu/ops/rope.h"

#include <cmath>

namespace stof::cpu {

void rope_angles(const float* frequencies, std::int64_t pairs, std::int64_t position,
                 float* cosines, float* sines) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    // The product is rounded to float, as the models were trained with.
    const float angle = static_cast<float>(position) * frequencies[i];
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
}

void rotate_row(const float* cosines, const float* sines, std::int64_t pairs, std::int64_t heads,
                float* x) {
  for (std::int64_t h = 0; h < heads; ++h) {
    float *first = x + h * 2 * pairs, *second = first + pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float a = first[i], b = second[i];
      first[i] = a * cosines[i] - b * sines[i];
      second[i] = b * cosines[i] + a * sines[i];
    }
  }
}

}  // namespace stof::cpu
