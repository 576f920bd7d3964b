#pragma once
// What the source emitted for expressions (src/expr/emit.h) calls: the operations that C++ rounds,
// bounds or orders differently. src/expr/value.h says the same for the CPU.

#include "ptx/math.cuh"
#include "ptx/types.cuh"

namespace stof::expression {

/// Integer is i32 where no result can leave 32 bits, else i64.
template <class Integer>
__device__ __forceinline__ Integer floor_div(Integer a, Integer b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<Integer>(0 - static_cast<u64>(a));
  const Integer quotient = a / b;
  return quotient - (quotient * b != a && (a < 0) != (b < 0) ? 1 : 0);
}

template <class Integer>
__device__ __forceinline__ Integer floor_mod(Integer a, Integer b) {
  if (b == 0 || b == -1) return 0;
  const Integer rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// 64-bit arithmetic that wraps.
__device__ __forceinline__ i64 add(i64 a, i64 b) {
  return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b));
}
__device__ __forceinline__ i64 sub(i64 a, i64 b) {
  return static_cast<i64>(static_cast<u64>(a) - static_cast<u64>(b));
}
__device__ __forceinline__ i64 mul(i64 a, i64 b) {
  return static_cast<i64>(static_cast<u64>(a) * static_cast<u64>(b));
}

/// exponent is a literal from 0 to 63.
template <class Integer>
__device__ __forceinline__ Integer power(Integer a, int exponent) {
  u64 result = 1;
  for (int i = 0; i < exponent; ++i) result *= static_cast<u64>(static_cast<i64>(a));
  return static_cast<Integer>(result);
}

__device__ __forceinline__ i64 shift_left(i64 a, i64 n) {
  return n < 0 || n > 63 ? 0 : static_cast<i64>(static_cast<u64>(a) << n);
}
__device__ __forceinline__ i64 shift_right(i64 a, i64 n) { return a >> (n < 0 || n > 63 ? 63 : n); }

__device__ __forceinline__ float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  const float rest = fmodf(a, b);
  float quotient = (a - rest) / b;
  if (rest != 0.0f && (b < 0.0f) != (rest < 0.0f)) quotient -= 1.0f;
  if (quotient == 0.0f) return copysignf(0.0f, a / b);
  const float floor = floorf(quotient);
  return quotient - floor > 0.5f ? floor + 1.0f : floor;
}
__device__ __forceinline__ float floor_mod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0.0f && (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
}

/// NaN where either side is NaN, unlike fminf and fmaxf.
__device__ __forceinline__ float min(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ float max(float a, float b) { return a > b || a != a ? a : b; }
template <class Integer>
__device__ __forceinline__ Integer min(Integer a, Integer b) {
  return a < b ? a : b;
}
template <class Integer>
__device__ __forceinline__ Integer max(Integer a, Integer b) {
  return a > b ? a : b;
}

__device__ __forceinline__ float power(float a, float exponent) {
  if (exponent == 2.0f) return a * a;
  if (exponent == 0.5f) return sqrtf(a);
  return powf(a, exponent);
}
__device__ __forceinline__ float rsqrt(float a) { return 1.0f / sqrtf(a); }
__device__ __forceinline__ float sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }

/// Towards zero; NaN gives 0, what is past 64 bits the nearest end.
__device__ __forceinline__ i64 to_int(float a) {
  if (a != a) return 0;
  if (a >= 9223372036854775808.0f) return 9223372036854775807LL;
  return a < -9223372036854775808.0f ? -9223372036854775807LL - 1 : static_cast<i64>(a);
}

/// Number of the element at `index` along one dimension, or -1 outside; below 0 it counts from the
/// end.
template <class Integer>
__device__ __forceinline__ i64 place(Integer index, i64 extent) {
  const i64 from_begin = index < 0 ? index + extent : index;
  return from_begin >= 0 && from_begin < extent ? from_begin : -1;
}

// The i-th element, as an expression takes it.
__device__ __forceinline__ i32 load(const bool* data, i64 i) {
  return reinterpret_cast<const unsigned char*>(data)[i] != 0;
}
__device__ __forceinline__ i32 load(const i32* data, i64 i) { return data[i]; }
__device__ __forceinline__ i64 load(const i64* data, i64 i) { return data[i]; }
__device__ __forceinline__ float load(const float* data, i64 i) { return data[i]; }

/// A table of 16-bit floats; Element is ptx::Float16 or ptx::BFloat16.
template <class Element>
struct HalfTable {
  const unsigned short* data;
};
template <class Element>
__device__ __forceinline__ float load(HalfTable<Element> table, i64 i) {
  return Element::low(table.data[i]);
}

}  // namespace stof::expression
