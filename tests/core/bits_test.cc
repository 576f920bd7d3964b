#include "core/bits.h"

#include <gtest/gtest.h>

#include <limits>

namespace stof {
namespace {

TEST(CeilDiv, RoundsUpOnBothSidesOfZero) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(ceil_div(-1, 4), 0);
  EXPECT_EQ(ceil_div(-8, 4), -2);
  EXPECT_EQ(ceil_div(-9, 4), -2);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(ceil_div(kMost, 2), kMost / 2 + 1);
  EXPECT_EQ(ceil_div(5, kMost), 1);
}

TEST(LowBits, TakesAnyCount) {
  EXPECT_EQ(low_bits(-3), 0U);
  EXPECT_EQ(low_bits(0), 0U);
  EXPECT_EQ(low_bits(3), 7U);
  EXPECT_EQ(low_bits(63), ~std::uint64_t{0} >> 1);
  EXPECT_EQ(low_bits(64), ~std::uint64_t{0});
  EXPECT_EQ(low_bits(70), ~std::uint64_t{0});
}

}  // namespace
}  // namespace stof
