#pragma once
// Writing ranges of bits into rows of 64-bit words.

#include <algorithm>
#include <cstdint>

#include "core/bits.h"

namespace stof::plan {

/// Sets bits [begin, end) of a row.
inline void set_bit_range(std::uint64_t* row, std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const std::int64_t in_word = begin % 64;
    const std::int64_t count = std::min(end - begin, 64 - in_word);
    row[begin / 64] |= low_bits(count) << in_word;
    begin += count;
  }
}

/// Ors 64 bits into a row of `width` bits so that bit 0 lands on `position`, which may be negative;
/// bits that fall outside the row are dropped.
inline void or_word(std::uint64_t* row, std::int64_t width, std::int64_t position,
                    std::uint64_t bits) {
  if (position < 0) {
    if (position <= -64) return;
    bits >>= -position;
    position = 0;
  }
  if (position >= width) return;
  bits &= low_bits(width - position);
  const std::int64_t in_word = position % 64;
  row[position / 64] |= bits << in_word;
  if (in_word == 0) return;
  const std::uint64_t carry = bits >> (64 - in_word);
  if (carry != 0) row[position / 64 + 1] |= carry;
}

}  // namespace stof::plan
