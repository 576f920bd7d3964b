#pragma once
// Single instructions the compiler has no plain expression for.

#include "ptx/types.cuh"

namespace stof::ptx {

/// 2^x; exp2(-inf) is exactly 0, error 2 ulp, subnormal results are flushed.
__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Of angles from -pi to pi, error 2^-20.5.
__device__ __forceinline__ float cos(float x) {
  float y;
  asm("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float sin(float x) {
  float y;
  asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x, error 1 ulp; of infinity 0.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger one; NaN where one is.
__device__ __forceinline__ float max_or_nan(float x, float y) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(x), "f"(y));
  return most;
}

/// Element tags: how two floats become one 32-bit register of two elements (low = first).
/// add_scaled: a + b * factor, element by element, in float32.
struct BFloat16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
    return packed;
  }
  static __device__ __forceinline__ float low(u32 word) { return __uint_as_float(word << 16); }
  static __device__ __forceinline__ float high(u32 word) {
    return __uint_as_float(word & 0xffff0000u);
  }
  static __device__ __forceinline__ u32 add_scaled(u32 a, u32 b, float factor) {
    return pack(low(a) + low(b) * factor, high(a) + high(b) * factor);
  }
};

struct Float16 {
  static __device__ __forceinline__ u32 pack(float first, float second) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
    return packed;
  }
  static __device__ __forceinline__ float low(u32 word) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(word)));
    return value;
  }
  static __device__ __forceinline__ float high(u32 word) { return low(word >> 16); }
  static __device__ __forceinline__ u32 add_scaled(u32 a, u32 b, float factor) {
    return pack(low(a) + low(b) * factor, high(a) + high(b) * factor);
  }
};

__device__ __forceinline__ i32 bits_of(float x) { return __float_as_int(x); }

/// x, computed here: the compiler knows nothing of the result and moves it nowhere.
__device__ __forceinline__ float opaque(float x) {
  asm volatile("" : "+f"(x));
  return x;
}

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

}  // namespace stof::ptx
