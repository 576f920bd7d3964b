#pragma once
// Interval arithmetic on positions: what classify() and row_bits() are made of.

#include <algorithm>
#include <cstdint>

#include "core/bits.h"
#include "stof/mask.h"

namespace stof::mask {

/// Largest magnitude of a position or of an argument that is one. Leaves room for sums of a million
/// of them in 64 bits, so no expression can overflow.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 40;

/// Stands for "no bound". Differences with any position fit.
inline constexpr std::int64_t kUnbounded = std::int64_t{1} << 61;

/// Quotient rounded down, for divisor > 0.
constexpr std::int64_t floor_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

/// Remainder in [0, divisor), for divisor > 0.
constexpr std::int64_t floor_mod(std::int64_t value, std::int64_t divisor) {
  const std::int64_t rest = value % divisor;
  return rest < 0 ? rest + divisor : rest;
}

/// Bit i is set where lo <= k_begin + i < hi.
constexpr std::uint64_t bits_of_range(std::int64_t k_begin, std::int64_t lo, std::int64_t hi) {
  return low_bits(hi - k_begin) & ~low_bits(lo - k_begin);
}

/// Bit i is set where (k_begin + i - origin) is a multiple of period.
constexpr std::uint64_t bits_of_multiples(std::int64_t k_begin, std::int64_t origin,
                                          std::int64_t period) {
  if (period == 1) return ~std::uint64_t{0};
  std::uint64_t bits = 0;
  for (std::int64_t i = floor_mod(origin - k_begin, period); i < 64; i += period)
    bits |= std::uint64_t{1} << i;
  return bits;
}

/// True if some value in [lo, hi], both inclusive, is a multiple of period.
constexpr bool has_multiple(std::int64_t lo, std::int64_t hi, std::int64_t period) {
  return lo <= hi && hi - floor_mod(hi, period) >= lo;
}

/// How much of [begin, end) lies in [lo, hi). [begin, end) is not empty.
constexpr TileClass classify_span(std::int64_t begin, std::int64_t end, std::int64_t lo,
                                  std::int64_t hi) {
  if (lo <= begin && end <= hi) return TileClass::kFull;
  return begin < hi && lo < end && lo < hi ? TileClass::kPartial : TileClass::kEmpty;
}

/// Class of the product of two independent sets, one of rows and one of columns.
constexpr TileClass product(TileClass rows, TileClass cols) {
  return std::min(rows, cols) == TileClass::kEmpty ? TileClass::kEmpty : std::min(rows, cols);
}

constexpr TileClass complement(TileClass tile_class) {
  if (tile_class == TileClass::kPartial) return TileClass::kPartial;
  return tile_class == TileClass::kEmpty ? TileClass::kFull : TileClass::kEmpty;
}

/// The part of a rectangle at positions >= 0 and below the limits.
struct ClippedRect {
  TileRect rect;
  bool empty;    ///< nothing is left, rect is meaningless
  bool clipped;  ///< something was cut off
};

constexpr ClippedRect clip(const TileRect& r, std::int64_t q_limit = kUnbounded,
                           std::int64_t k_limit = kUnbounded) {
  const TileRect c{std::max<std::int64_t>(r.q_begin, 0), std::min(r.q_end, q_limit),
                   std::max<std::int64_t>(r.k_begin, 0), std::min(r.k_end, k_limit)};
  return {
      c, c.q_begin >= c.q_end || c.k_begin >= c.k_end,
      c.q_begin != r.q_begin || c.q_end != r.q_end || c.k_begin != r.k_begin || c.k_end != r.k_end};
}

/// Smallest and largest k - q in a rectangle; every value between occurs.
struct Diagonals {
  std::int64_t lo, hi;
};

constexpr Diagonals diagonals(const TileRect& r) {
  return {r.k_begin - (r.q_end - 1), r.k_end - 1 - r.q_begin};
}

}  // namespace stof::mask
