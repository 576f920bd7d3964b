#include "backend/cpu/ops/rope.h"

#include <cmath>

namespace stof::cpu {

RopeAngles::RopeAngles(const std::vector<float>& frequencies, std::int64_t first_position,
                       std::int64_t positions)
    : pairs(static_cast<std::int64_t>(frequencies.size())) {
  cosines.reserve(static_cast<std::size_t>(positions * pairs));
  sines.reserve(static_cast<std::size_t>(positions * pairs));
  for (std::int64_t p = first_position; p < first_position + positions; ++p)
    for (const float frequency : frequencies) {
      // The product is rounded to float, as the models were trained with.
      const float angle = static_cast<float>(p) * frequency;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
}

void rotate(const RopeAngles& angles, float* x, std::int64_t rows, std::int64_t stride,
            std::int64_t heads) {
  const std::int64_t pairs = angles.pairs;
#pragma omp parallel for schedule(static) if (rows > 8)
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* cosine = angles.cosines.data() + r * pairs;
    const float* sine = angles.sines.data() + r * pairs;
    for (std::int64_t h = 0; h < heads; ++h) {
      float *first = x + r * stride + h * 2 * pairs, *second = first + pairs;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const float a = first[i], b = second[i];
        first[i] = a * cosine[i] - b * sine[i];
        second[i] = b * cosine[i] + a * sine[i];
      }
    }
  }
}

}  // namespace stof::cpu
