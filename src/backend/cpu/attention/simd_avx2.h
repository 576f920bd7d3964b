#pragma once
// Simd for AVX2 with FMA and F16C: eight floats.

#include <immintrin.h>

#include <cstdint>

namespace stof::cpu {
namespace {

struct Simd {
  static constexpr int kWidth = 8;
  static constexpr int kRows = 4;  // 4 x 3 accumulators, 3 operands and a broadcast: 16 registers
  using Vec = __m256;
  using Mask = __m256;

  static Vec set1(float x) { return _mm256_set1_ps(x); }
  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  /// b where either is NaN.
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static Mask equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static Vec select(Mask mask, Vec a, Vec b) { return _mm256_blendv_ps(b, a, mask); }
  /// Lane i is set where bit i is.
  static Mask mask_from_bits(std::uint64_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits & 0xff));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane));
  }
  static Vec shift_into_exponent(Vec v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 23));
  }

  static Vec load_bfloat16(const std::uint16_t* p) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
  }
  static Vec load_float16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace
}  // namespace stof::cpu
