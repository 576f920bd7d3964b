#pragma once
// Rotary position embedding: the numbers that turn a pair of components.

#include "ptx/math.cuh"

namespace stof {

/// cos and sin of an angle below 2^22 radians, error 6e-7, a thousandth of what rounding to 16 bits
/// costs. Whole turns are taken off in two steps: the first product is exact to the bit, so that
/// nothing is lost however large the angle; the second takes off what 2 pi as a float lacks.
__device__ __forceinline__ void cos_sin(float angle, float& cosine, float& sine) {
  constexpr float kTurn = 6.2831854820251465f, kTurnLacks = -1.7484555314695172e-7f;
  const float turns = rintf(angle * 0.15915493667125702f);
  const float rest = fmaf(-turns, kTurnLacks, fmaf(-turns, kTurn, angle));
  cosine = ptx::cos(rest);
  sine = ptx::sin(rest);
}

}  // namespace stof
