#pragma once
// Activations of one float32 value: no division, no branch, since products' epilogues hide few
// instructions. Where infinity would give a number as if nothing had happened, it gives NaN, as NaN
// does: an overflow stays visible.

#include "ptx/math.cuh"
#include "ptx/types.cuh"

namespace stof {

/// x/2 (1 + erf(x / sqrt 2)) as max(x, 0) - |x| 2^P(|x|), where P approximates log2 of half the
/// complementary error function: the fit that minimises |x| times that function's error, 5e-7, a
/// thousandth of what rounding to 16 bits costs. P falls without end, so that far out the result is
/// exactly 0 or x. erff() takes three times the instructions.
__device__ __forceinline__ float gelu_erf(float x) {
  const float a = fabsf(x);
  float p = -0.000473309687f;
  p = fmaf(p, a, 0.00708456011f);
  p = fmaf(p, a, -0.0518273897f);
  p = fmaf(p, a, -0.459992439f);
  p = fmaf(p, a, -1.15078783f);
  p = fmaf(p, a, -1.00003767f);
  return fmaf(-a, ptx::exp2(p), fmaxf(x, 0.0f));
}

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), by (1 + tanh(u))/2 = 1 / (1 + exp(-2u)).
__device__ __forceinline__ float gelu_tanh(float x) {
  // -2 log2(e) sqrt(2/pi), and that times 0.044715
  const float exponent = x * fmaf(-0.10294323958002348f * x, x, -2.302208198144325f);
  return x * ptx::reciprocal(1.0f + ptx::exp2(exponent));
}

/// x / (1 + exp(-x)); x = -infinity gives NaN.
__device__ __forceinline__ float silu(float x) {
  constexpr float kLog2e = 1.4426950408889634f;
  return x * ptx::reciprocal(1.0f + ptx::exp2(-kLog2e * x));
}

/// NaN stays NaN.
__device__ __forceinline__ float relu(float x) { return ptx::max_or_nan(x, 0.0f); }

}  // namespace stof
