#pragma once
// The generator behind the seeded masks: counter-based and integer-only, so that the same seed
// gives the same mask on every machine, in every language and in any order of asking.
//
//   mix(x):        x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;
//                  x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
//                  (the finaliser of SplitMix64: Steele et al. 2014, doi 10.1145/2660193.2660195)
//   absorb(s, v):  mix((s ^ v) + 0x9e3779b97f4a7c15)
//   key(seed, head, row, col) = absorb(absorb(absorb(absorb(0, seed), head), row), col)
//
// all modulo 2^64. head is 0 unless the mask is drawn per head. row and col are block indices for
// random_blocks_*, token indices for random_elements.
//
// With a rate: visible iff (key >> 11) < rate * 2^53, which is exact in double precision.
// With a count: the `count` columns of the grid with the smallest keys of that row are visible, all
// of them where the grid has no more. Keys of one row are never equal (absorb is one-to-one in v).

#include <cmath>
#include <cstdint>

namespace stof::mask {

constexpr std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t absorb(std::uint64_t state, std::uint64_t value) {
  return mix((state ^ value) + 0x9e3779b97f4a7c15U);
}

/// The keys of one row, by column.
class RandomRow {
 public:
  constexpr RandomRow(std::uint64_t seed, std::int64_t head, std::int64_t row)
      : state_(absorb(absorb(absorb(0, seed), static_cast<std::uint64_t>(head)),
                      static_cast<std::uint64_t>(row))) {}

  constexpr std::uint64_t key(std::int64_t col) const {
    return absorb(state_, static_cast<std::uint64_t>(col));
  }

 private:
  std::uint64_t state_;
};

/// A key is visible iff key >> 11 is below this. 0 <= rate <= 1.
inline std::uint64_t rate_threshold(double rate) {
  return static_cast<std::uint64_t>(std::ceil(std::ldexp(rate, 53)));
}

}  // namespace stof::mask
