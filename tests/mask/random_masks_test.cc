// Seeded masks: the documented generator, the rate, the count.

#include <algorithm>
#include <cmath>
#include <vector>

#include "mask/brute_force.h"
#include "mask/random.h"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;

/// The generator as docs/masks.md states it, written again.
std::uint64_t key(std::uint64_t seed, I head, I row, I col) {
  std::uint64_t state = 0;
  for (const std::uint64_t value :
       {seed, static_cast<std::uint64_t>(head), static_cast<std::uint64_t>(row),
        static_cast<std::uint64_t>(col)}) {
    std::uint64_t x = (state ^ value) + 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    state = x ^ (x >> 31);
  }
  return state;
}

RC_GTEST_PROP(RandomElements, MatchTheGenerator, ()) {
  const double rate = static_cast<double>(random_int(0, 20)) / 20;
  const auto seed = static_cast<std::uint64_t>(random_int(0, 1 << 30)) << 30;
  const bool per_head = random_int(0, 1) != 0;
  const I h = random_int(0, 3);
  check_mask(
      random_elements(rate, seed, per_head),
      [&](I, I, I q, I k) {
        return q >= 0 && k >= 0 &&
               std::ldexp(static_cast<double>(key(seed, per_head ? h : 0, q, k) >> 11), -53) < rate;
      },
      -20, 90, Precision::kExact, 0, h);
}

RC_GTEST_PROP(RandomBlocksRate, MatchTheGenerator, ()) {
  const double rate = static_cast<double>(random_int(0, 20)) / 20;
  const auto seed = static_cast<std::uint64_t>(random_int(0, 1 << 30));
  const bool per_head = random_int(0, 1) != 0;
  const I block = random_int(1, 30), h = random_int(0, 3);
  check_mask(
      random_blocks_rate(block, rate, seed, per_head),
      [&](I, I, I q, I k) {
        return q >= 0 && k >= 0 &&
               std::ldexp(
                   static_cast<double>(key(seed, per_head ? h : 0, q / block, k / block) >> 11),
                   -53) < rate;
      },
      -20, 120, Precision::kExact, 0, h);
}

RC_GTEST_PROP(RandomBlocksCount, TakeTheSmallestKeysOfEachRow, ()) {
  const auto seed = static_cast<std::uint64_t>(random_int(0, 1 << 30));
  const bool per_head = random_int(0, 1) != 0;
  const I block = random_int(1, 20), count = random_int(0, 8), h = random_int(0, 2);
  const I seq_q = random_int(1, 120), seq_kv = random_int(1, 120);
  const I rows = (seq_q + block - 1) / block, cols = (seq_kv + block - 1) / block;
  const Mask mask = random_blocks_count(block, count, seed, per_head).bind({1, 3, seq_q, seq_kv});
  RC_ASSERT(mask.head_extent() == (per_head ? 3 : 1));
  check_mask(
      mask,
      [&](I, I, I q, I k) {
        const I r = q / block, c = k / block;
        if (q < 0 || k < 0 || r >= rows || c >= cols) return false;
        I smaller = 0;
        for (I other = 0; other < cols; ++other)
          smaller += key(seed, per_head ? h : 0, r, other) < key(seed, per_head ? h : 0, r, c);
        return smaller < count;
      },
      -20, 130, Precision::kExact, 0, h);
}

TEST(RandomMasks, KeysAreTheSameOnEveryMachine) {
  EXPECT_EQ(RandomRow(0, 0, 0).key(0), 0x2130748aaac80268ULL);
  EXPECT_EQ(RandomRow(0, 0, 0).key(1), 0x2a4f111b3be57715ULL);
  EXPECT_EQ(RandomRow(0, 0, 1).key(0), 0xd9eef7f073d37c42ULL);
  EXPECT_EQ(RandomRow(0, 1, 0).key(0), 0xd1c0270687984b37ULL);
  EXPECT_EQ(RandomRow(1, 0, 0).key(0), 0xe28195ddd9ee4956ULL);
  EXPECT_EQ(RandomRow(0xdeadbeefcafef00dULL, 11, 2047).key(0x7ffffffe), 0xe93cd508f75a499bULL);
  EXPECT_EQ(random_blocks_count(4, 3, 7).bind({1, 1, 32, 32}).visible_keys(0, 0, 5, 32),
            (std::vector<I>{0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(RandomMasks, RatesAreKeptOnAverage) {
  const Mask mask = random_elements(0.25, 1);
  I visible = 0;
  for (I q = 0; q < 512; ++q) visible += static_cast<I>(mask.visible_keys(0, 0, q, 512).size());
  // Five standard deviations.
  EXPECT_NEAR(static_cast<double>(visible) / (512 * 512), 0.25, 5 * std::sqrt(0.1875) / 512);
}

TEST(RandomMasks, HeadsDifferOnlyWhereAskedTo) {
  const auto rows = [](const Mask& m, I h) { return m.row_bits(0, h, 3, 0); };
  EXPECT_EQ(rows(random_elements(0.5, 1), 0), rows(random_elements(0.5, 1), 1));
  EXPECT_NE(rows(random_elements(0.5, 1, true), 0), rows(random_elements(0.5, 1, true), 1));
  EXPECT_EQ(rows(random_elements(0.5, 1, true), 0), rows(random_elements(0.5, 1), 0));
}

TEST(RandomMasks, PerHeadKnowsItsHeadsOnceBound) {
  const Mask mask = causal() & random_elements(0.5, 1, true);
  EXPECT_EQ(mask.head_extent(), 0);
  EXPECT_EQ(mask.bind({1, 12, 8, 8}).head_extent(), 12);
}

// Case 44: among equal scores no column is favoured: low columns are drawn as often as high ones.
TEST(RandomBlocksCount, DoNotFavourLowColumns) {
  const I blocks = 590, keep = 148;
  const Mask mask = random_blocks_count(1, keep, 5).bind({1, 1, blocks, blocks});
  I low = 0;
  for (I q = 0; q < blocks; ++q) {
    const std::vector<I> keys = mask.visible_keys(0, 0, q, blocks);
    ASSERT_EQ(static_cast<I>(keys.size()), keep);
    low += std::count_if(keys.begin(), keys.end(), [&](I k) { return k < blocks / 2; });
  }
  EXPECT_NEAR(static_cast<double>(low) / static_cast<double>(blocks * keep), 0.5, 0.01);
  const BlockMaskStats stats = compute_stats(build_block_mask(mask, {1, 1, blocks, blocks}));
  EXPECT_NEAR(1 - stats.element_density, 0.749, 5e-4);  // 1 - 148/590
}

TEST(RandomBlocksCount, GiveAllColumnsWhereThereAreNoMore) {
  const Mask mask = random_blocks_count(4, 100, 0).bind({1, 1, 8, 12});
  EXPECT_EQ(mask.classify(0, 0, {0, 8, 0, 12}), TileClass::kFull);
  EXPECT_EQ(random_blocks_count(4, 3, 0).bind({1, 1, 0, 0}).visible(0, 0, 0, 0), false);
}

TEST(RandomBlocksCount, AsksToBeBoundFirst) {
  const Mask mask = random_blocks_count(4, 1, 0);
  EXPECT_FALSE(mask.bound());
  try {
    mask.visible(0, 0, 0, 0);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("bind()"), std::string::npos);
  }
}

}  // namespace
}  // namespace stof::mask::testing
