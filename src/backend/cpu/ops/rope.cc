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

RopeAngles::RopeAngles(const std::vector<float>& frequencies, std::int64_t first_position,
                       std::int64_t positions)
    : cosines(frequencies.size() * static_cast<std::size_t>(positions)),
      sines(cosines.size()),
      pairs(static_cast<std::int64_t>(frequencies.size())) {
  for (std::int64_t p = 0; p < positions; ++p)
    rope_angles(frequencies.data(), pairs, first_position + p, cosines.data() + p * pairs,
                sines.data() + p * pairs);
}

void rotate(const RopeAngles& angles, float* x, std::int64_t rows, std::int64_t stride,
            std::int64_t heads) {
#pragma omp parallel for schedule(static) if (rows > 8)
  for (std::int64_t r = 0; r < rows; ++r)
    rotate_row(angles.cosines.data() + r * angles.pairs, angles.sines.data() + r * angles.pairs,
               angles.pairs, heads, x + r * stride);
}

}  // namespace stof::cpu
