#pragma once
// Activations of one float32 value.

#include "ptx/math.cuh"
#include "ptx/types.cuh"

namespace stof {

/// x/2 (1 + erf(x / sqrt 2)) as max(x, 0) - |x| 2^P(|x|), where P approximates log2 of half the
/// complementary error function: a weighted minimax fit on [0, 6], absolute error 5e-7 everywhere, a
/// thousandth of what rounding to 16 bits costs. One exponential, no division, no branch; erff() takes
/// three times the instructions. Infinities give NaN, as NaN does, so that an overflow stays visible.
__device__ __forceinline__ float gelu_erf(float x) {
  const float a = fabsf(x);
  float p = -0.0004733080859296024f;
  p = p * a + 0.007084549404680729f;
  p = p * a - 0.05182736739516258f;
  p = p * a - 0.4599924385547638f;
  p = p * a - 1.1507878303527832f;
  p = p * a - 1.000037670135498f;
  return fmaxf(x, 0.0f) - a * ptx::exp2(p);
}

/// x / (1 + exp(-x)); x = -infinity gives NaN.
__device__ __forceinline__ float silu(float x) {
  constexpr float kLog2e = 1.4426950408889634f;
  return x / (1.0f + ptx::exp2(-kLog2e * x));
}

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), by (1 + tanh(u))/2 = 1 / (1 + exp(-2u)).
__device__ __forceinline__ float gelu_tanh(float x) {
  // -2 log2(e) sqrt(2/pi), and that times 0.044715
  const float exponent = x * (-2.302208198144325f - 0.10294323958002348f * x * x);
  return x / (1.0f + ptx::exp2(exponent));
}

__device__ __forceinline__ float relu(float x) { return fmaxf(x, 0.0f); }

}  // namespace stof
