#pragma once
// Rotation of queries and keys by their positions.

#include <cstdint>

namespace stof::cpu {

/// cos and sin of the angles of one position, [pairs] each. `frequencies`: radians a position.
void rope_angles(const float* frequencies, std::int64_t pairs, std::int64_t position,
                 float* cosines, float* sines);

/// In place, for each head of a row: (x[i], x[i + pairs]) turns by the angle of pair i. x:
/// [heads, 2 pairs].
void rotate_row(const float* cosines, const float* sines, std::int64_t pairs, std::int64_t heads,
                float* x);

}  // namespace stof::cpu
