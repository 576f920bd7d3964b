#pragma once
// Rotation of queries and keys by their positions.

#include <cstdint>
#include <vector>

namespace stof::cpu {

/// cos and sin of the angles of consecutive positions, [positions, head_dim / 2] each.
struct RopeAngles {
  std::vector<float> cosines, sines;
  std::int64_t pairs = 0;

  /// `frequencies`: radians a position of each pair.
  RopeAngles(const std::vector<float>& frequencies, std::int64_t first_position,
             std::int64_t positions);
};

/// The same of one position, [pairs] each.
void rope_angles(const float* frequencies, std::int64_t pairs, std::int64_t position,
                 float* cosines, float* sines);

/// One row of rotate().
void rotate_row(const float* cosines, const float* sines, std::int64_t pairs, std::int64_t heads,
                float* x);

/// In place, for row r and each head: (x[i], x[i + pairs]) turns by the angle of position r. x:
/// [rows, heads, 2 pairs], rows `stride` floats apart.
void rotate(const RopeAngles& angles, float* x, std::int64_t rows, std::int64_t stride,
            std::int64_t heads);

}  // namespace stof::cpu
