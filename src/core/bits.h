#pragma once
// Integer arithmetic that tiles and bitmaps are made of.

#include <cstdint>

namespace stof {

/// Quotient rounded up, for divisor > 0.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

/// The n lowest bits; n below 0 counts as 0, above 64 as 64.
constexpr std::uint64_t low_bits(std::int64_t n) {
  if (n <= 0) return 0;
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

}  // namespace stof
