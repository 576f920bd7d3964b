#pragma once
// Reading a mask's rows without asking about keys that do not exist.

#include <algorithm>
#include <cstdint>

#include "mask/block/bitmap.h"
#include "stof/mask.h"

namespace stof::mask {

/// Bit i = key k_begin + i of query q, for num_keys (1 to 64) keys that end at or before seq_kv.
/// row_bits() always answers for 64: near the end they are taken from further left, because a
/// user's array has no entry past it.
inline std::uint64_t row_bits_within(const Mask& mask, std::int64_t b, std::int64_t h,
                                     std::int64_t q, std::int64_t k_begin, std::int64_t num_keys,
                                     std::int64_t seq_kv) {
  if (seq_kv >= 64) {
    const std::int64_t from = std::min(k_begin, seq_kv - 64);
    return (mask.row_bits(b, h, q, from) >> (k_begin - from)) & low_bits(num_keys);
  }
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < num_keys; ++i)
    bits |= std::uint64_t{mask.visible(b, h, q, k_begin + i)} << i;
  return bits;
}

}  // namespace stof::mask
