#pragma once
// Simd for any processor: four floats through the compiler's vector extension, which becomes the
// baseline instruction set or plain scalar code.

#include <cstdint>

namespace stof::cpu {
namespace {

struct Simd {
  static constexpr int kWidth = 4;
  static constexpr int kRows = 4;  // 4 x 3 accumulators fit the 16 registers of SSE2
  typedef float Vec __attribute__((vector_size(16)));
  typedef std::int32_t Mask __attribute__((vector_size(16)));

  static Vec set1(float x) { return Vec{x, x, x, x}; }
  static Vec load(const float* p) {
    Vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
  static Vec add(Vec a, Vec b) { return a + b; }
  static Vec sub(Vec a, Vec b) { return a - b; }
  static Vec mul(Vec a, Vec b) { return a * b; }
  static Vec div(Vec a, Vec b) { return a / b; }
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
  /// b where either is NaN.
  static Vec max(Vec a, Vec b) { return select(a > b, a, b); }
  static Mask less(Vec a, Vec b) { return a < b; }
  static Mask equal(Vec a, Vec b) { return a == b; }
  static Vec select(Mask mask, Vec a, Vec b) {
    const Mask bits = (mask & (Mask)a) | (~mask & (Mask)b);
    return (Vec)bits;
  }
  /// Lane i is set where bit i is.
  static Mask mask_from_bits(std::uint64_t bits) {
    const auto low = static_cast<std::int32_t>(bits & 0xf);
    const Mask lane = {1, 2, 4, 8};
    return (Mask{low, low, low, low} & lane) == lane;
  }
  static Vec shift_into_exponent(Vec v) { return (Vec)((Mask)v << 23); }

  static Vec load_bfloat16(const std::uint16_t* p) {
    const Mask wide = {p[0], p[1], p[2], p[3]};
    return (Vec)(wide << 16);
  }
  static Vec load_float16(const std::uint16_t* p) {
    return Vec{half(p[0]), half(p[1]), half(p[2]), half(p[3])};
  }

 private:
  /// Exact, subnormals and NaN included: the magnitude's bits are moved into place and the exponent
  /// bias is mended by a multiplication with 2^112.
  static float half(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fff) << 13;
    if ((bits & 0x7c00) == 0x7c00) {
      magnitude |= 0x7f800000;
    } else {
      float value;
      __builtin_memcpy(&value, &magnitude, sizeof value);
      value *= 0x1p112f;
      __builtin_memcpy(&magnitude, &value, sizeof value);
    }
    magnitude |= sign;
    float value;
    __builtin_memcpy(&value, &magnitude, sizeof value);
    return value;
  }
};

}  // namespace
}  // namespace stof::cpu
