#pragma once
// kernels/ptx/math.cuh in plain C++.

#include <cmath>
#include <cstring>

#include "machine.h"
#include "ptx/types.cuh"
#include "stof/dtype.h"

namespace stof::ptx {

inline float exp2(float x) { return std::exp2(x); }
inline float log2(float x) { return std::log2(x); }
inline float cos(float x) { return std::cos(x); }
inline float sin(float x) { return std::sin(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float reciprocal(float x) { return 1 / x; }
inline float max_or_nan(float x, float y) { return x > y || std::isnan(x) ? x : y; }
inline float infinity() { return HUGE_VALF; }
inline float opaque(float x) { return x; }
inline i32 bits_of(float x) {
  i32 bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

template <class Value>
struct EmulatedElement {
  static u32 pack(float first, float second) {
    return static_cast<u32>(Value(first).bits) | static_cast<u32>(Value(second).bits) << 16;
  }
  static float low(u32 word) {
    Value value;
    value.bits = static_cast<std::uint16_t>(word);
    return static_cast<float>(value);
  }
  static float high(u32 word) { return low(word >> 16); }
  static u32 add_scaled(u32 a, u32 b, float factor) {
    return pack(low(a) + low(b) * factor, high(a) + high(b) * factor);
  }
};
struct BFloat16 : EmulatedElement<stof::BFloat16> {};
struct Float16 : EmulatedElement<stof::Float16> {};

}  // namespace stof::ptx
