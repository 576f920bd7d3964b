#pragma once
// Elementary functions over Simd.

#include "backend/cpu/attention/simd.h"

namespace stof::cpu {
namespace {

using Vec = Simd::Vec;

inline constexpr float kInfinity = __builtin_inff();

/// exp(x) for x <= 0, within 2 ulp where the result is a normal number; smaller results are 0, NaN
/// stays NaN. x = n ln 2 + r with |r| <= ln(2)/2: the power of two is built in the exponent field
/// and exp(r) = 1 + r + r^2 q(r), q interpolated at the Chebyshev nodes of the interval (relative
/// error 1.1e-8).
Vec exp_nonpositive(Vec x) {
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits; 127 more is the
  // exponent's bias.
  const Vec magic = Simd::set1(12582912.0f + 127.0f);
  const Vec shifted = Simd::fma(x, Simd::set1(1.44269504f), magic);
  const Vec n = Simd::sub(shifted, magic);
  // ln 2 in two parts: n * 0.693145751953125 is exact.
  Vec r = Simd::fma(n, Simd::set1(-0.693145751953125f), x);
  r = Simd::fma(n, Simd::set1(-1.428606765e-06f), r);
  Vec q = Simd::set1(1.392618404e-03f);
  q = Simd::fma(q, r, Simd::set1(8.363178931e-03f));
  q = Simd::fma(q, r, Simd::set1(4.166655615e-02f));
  q = Simd::fma(q, r, Simd::set1(1.666657627e-01f));
  q = Simd::fma(q, r, Simd::set1(0.5f));
  const Vec r_squared = Simd::mul(r, r);
  const Vec exp_r = Simd::add(Simd::fma(q, r_squared, r), Simd::set1(1.0f));
  const Vec value = Simd::mul(exp_r, Simd::shift_into_exponent(shifted));
  // Below ln(2^-126); -inf lands here too.
  return Simd::select(Simd::less(x, Simd::set1(-87.33654475f)), Simd::set1(0.0f), value);
}

/// tanh(x): an odd polynomial near 0, where the formula with exp would cancel.
Vec tanh_any(Vec x) {
  const Vec zero = Simd::set1(0.0f), one = Simd::set1(1.0f);
  const Vec magnitude = Simd::max(Simd::sub(zero, x), x);  // x where x is NaN
  const Vec e = exp_nonpositive(Simd::mul(magnitude, Simd::set1(-2.0f)));
  const Vec large = Simd::div(Simd::sub(one, e), Simd::add(one, e));
  const Vec signed_large = Simd::select(Simd::less(x, zero), Simd::sub(zero, large), large);
  // Taylor series to x^9; the next term is below 2^-27 for |x| < 1/4.
  const Vec s = Simd::mul(x, x);
  Vec p = Simd::set1(62.0f / 2835.0f);
  p = Simd::fma(p, s, Simd::set1(-17.0f / 315.0f));
  p = Simd::fma(p, s, Simd::set1(2.0f / 15.0f));
  p = Simd::fma(p, s, Simd::set1(-1.0f / 3.0f));
  const Vec small = Simd::fma(Simd::mul(p, s), x, x);
  return Simd::select(Simd::less(magnitude, Simd::set1(0.25f)), small, signed_large);
}

}  // namespace
}  // namespace stof::cpu
