#pragma once
// Compares a mask with a plain predicate, pair by pair, over random rectangles.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "stof/mask.h"

namespace stof::mask::testing {

using Predicate =
    std::function<bool(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k)>;

/// A random integer of [lo, hi], both inclusive.
inline std::int64_t random_int(std::int64_t lo, std::int64_t hi) {
  return *rc::gen::resize(100, rc::gen::inRange<std::int64_t>(lo, hi + 1));
}

/// A random rectangle of at most 40 x 40 with corners in [lo, hi).
inline TileRect random_rect(std::int64_t lo, std::int64_t hi) {
  const std::int64_t q = random_int(lo, hi - 1), k = random_int(lo, hi - 1);
  return {q, q + random_int(1, std::min<std::int64_t>(40, hi - q)), k,
          k + random_int(1, std::min<std::int64_t>(40, hi - k))};
}

/// What classify() must say, from every pair of the rectangle.
inline TileClass classify_by_pairs(const Predicate& visible, std::int64_t b, std::int64_t h,
                                   const TileRect& rect) {
  bool some = false, every = true;
  for (std::int64_t q = rect.q_begin; q < rect.q_end; ++q)
    for (std::int64_t k = rect.k_begin; k < rect.k_end; ++k) {
      const bool now = visible(b, h, q, k);
      some |= now;
      every &= now;
    }
  return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
}

inline Predicate predicate_of(const Mask& mask) {
  return [mask](std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) {
    return mask.visible(b, h, q, k);
  };
}

enum class Precision { kExact, kSound };

/// Checks visible(), classify() and row_bits() of one (batch, head) against the predicate on
/// rectangles with corners in [lo, hi).
inline void check_mask(const Mask& mask, const Predicate& expected, std::int64_t lo,
                       std::int64_t hi, Precision precision = Precision::kExact, std::int64_t b = 0,
                       std::int64_t h = 0) {
  for (int round = 0; round < 8; ++round) {
    const TileRect r = random_rect(lo, hi);
    for (std::int64_t q = r.q_begin; q < r.q_end; ++q)
      for (std::int64_t k = r.k_begin; k < r.k_end; ++k)
        if (mask.visible(b, h, q, k) != expected(b, h, q, k))
          RC_FAIL("visible at query " + std::to_string(q) + ", key " + std::to_string(k));

    const TileClass exact = classify_by_pairs(expected, b, h, r);
    const TileClass got = mask.classify(b, h, r);
    RC_LOG() << "queries [" << r.q_begin << ", " << r.q_end << "), keys [" << r.k_begin << ", "
             << r.k_end << "): " << to_string(got) << ", by pairs " << to_string(exact) << "\n";
    RC_ASSERT(got == exact || (precision == Precision::kSound && got == TileClass::kPartial));

    const std::uint64_t bits = mask.row_bits(b, h, r.q_begin, r.k_begin);
    for (int i = 0; i < 64; ++i)
      if (((bits >> i) & 1) != expected(b, h, r.q_begin, r.k_begin + i))
        RC_FAIL("row_bits of query " + std::to_string(r.q_begin) + " from key " +
                std::to_string(r.k_begin) + ": bit " + std::to_string(i));
  }
}

}  // namespace stof::mask::testing
