#pragma once
// Activation functions in float32, exact to what 16 bits can hold. NaN stays NaN.

#include "ptx/math.cuh"

namespace stof {

struct Identity {
  static __device__ __forceinline__ float of(float x) { return x; }
};

struct Relu {
  static __device__ __forceinline__ float of(float x) { return ptx::max_or_nan(x, 0.0f); }
};

/// x / (1 + e^-x)
struct Silu {
  static __device__ __forceinline__ float of(float x) {
    return x * ptx::reciprocal(1.0f + ptx::exp2(-1.44269504f * x));
  }
};

/// x times the share of a distribution that lies below x: max(x, 0) - |x| tail(|x|), where the tail is
/// 2 to a polynomial of degree 5 whose coefficients minimise the largest |x| times its error: one
/// exponential, no division, no branch. The polynomials fall without end, so that the tail becomes
/// exactly 0; |x| is held below 64 lest infinity times 0 be NaN.
template <class Tail>
struct GeluOf {
  static __device__ __forceinline__ float of(float x) {
    const float size = ptx::min_or_nan(fabsf(x), 64.0f);
    float power = Tail::k5;
    power = fmaf(power, size, Tail::k4);
    power = fmaf(power, size, Tail::k3);
    power = fmaf(power, size, Tail::k2);
    power = fmaf(power, size, Tail::k1);
    power = fmaf(power, size, Tail::k0);
    return fmaf(-size, ptx::exp2(power), fmaxf(x, 0.0f));
  }
};

/// log2(erfc(a / sqrt 2) / 2): absolute error of the function 4.6e-7.
struct NormalTail {
  static constexpr float k0 = -1.00003767f, k1 = -1.15078783f, k2 = -0.459992439f,
                         k3 = -0.0518273897f, k4 = 0.00708456011f, k5 = -0.000473309687f;
};
/// -log2(1 + e^(2 sqrt(2 / pi) (a + 0.044715 a^3))): absolute error of the function 4.6e-6.
struct TanhTail {
  static constexpr float k0 = -1.00036347f, k1 = -1.14829707f, k2 = -0.46535846f,
                         k3 = -0.0473973602f, k4 = 0.00872794446f, k5 = -0.00197852659f;
};

/// x/2 (1 + erf(x / sqrt 2))
using GeluErf = GeluOf<NormalTail>;
/// x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
using GeluTanh = GeluOf<TanhTail>;

}  // namespace stof
