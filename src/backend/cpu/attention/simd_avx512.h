#pragma once
// Simd for AVX-512 (F, BW, DQ, VL): sixteen floats.

#include <immintrin.h>

#include <cstdint>

namespace stof::cpu {
namespace {

struct Simd {
  static constexpr int kWidth = 16;
  static constexpr int kRows = 8;  // 8 x 3 accumulators, 3 operands and a broadcast of 32 registers
  using Vec = __m512;
  using Mask = __mmask16;
  // The zero-masked forms with every lane set compile to the plain instructions; the plain
  // intrinsics of GCC 12 warn of their own undefined operand.
  static constexpr Mask kAll = 0xffff;

  static Vec set1(float x) { return _mm512_set1_ps(x); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  /// b where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm512_maskz_max_ps(kAll, a, b); }
  static Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static Vec select(Mask mask, Vec a, Vec b) { return _mm512_mask_blend_ps(mask, b, a); }
  /// Lane i is set where bit i is.
  static Mask mask_from_bits(std::uint64_t bits) { return static_cast<Mask>(bits); }
  static Vec shift_into_exponent(Vec v) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_castps_si512(v), 23));
  }

  static Vec load_bfloat16(const std::uint16_t* p) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, narrow), 16));
  }
  static Vec load_float16(const std::uint16_t* p) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

}  // namespace
}  // namespace stof::cpu
