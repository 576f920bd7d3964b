#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "mask/array_node.h"
#include "mask/block/bitmap.h"
#include "mask/block/builder.h"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask {
namespace {

using testing::array_mask;
using testing::BoolArray;
using testing::Classifies;
using testing::random_array;

void expect_same_pairs(const BlockMask& blocks, const BoolArray& array) {
  const ScoreShape& s = array.shape;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.num_heads; ++h)
      for (std::int64_t q = 0; q < s.seq_q; ++q)
        for (std::int64_t k = 0; k < s.seq_kv; ++k)
          if (blocks.visible(b, h, q, k) != array.at(b, h, q, k))
            RC_FAIL("query " + std::to_string(q) + ", key " + std::to_string(k));
}

RC_GTEST_PROP(BlockMask, KeepsEveryPairOfARandomMask, ()) {
  const BoolArray array = random_array();
  const BlockMask blocks = build_block_mask(array_mask(array), array.shape);
  blocks.validate();
  expect_same_pairs(blocks, array);
}

// Compound masks may answer "partial" anywhere; the result must not depend on it.
RC_GTEST_PROP(BlockMask, IsTheSameHoweverVaguelyTheMaskClassifies, ()) {
  const BoolArray array = random_array();
  const BlockMask exact = build_block_mask(array_mask(array), array.shape);
  const BlockMask vague =
      build_block_mask(array_mask(array, Classifies::kAlwaysPartial), array.shape);
  RC_ASSERT(exact.fingerprint() == vague.fingerprint());
}

RC_GTEST_PROP(BlockMask, ExpandsToTheArraysOfTheFormat, ()) {
  const BoolArray array = random_array();
  const BlockMask blocks = build_block_mask(array_mask(array), array.shape);
  for (std::int64_t b = 0; b < array.shape.batch; ++b) {
    for (std::int64_t h = 0; h < array.shape.num_heads; ++h) {
      BlockMaskArrays expected;
      expected.full_row_ptr = expected.part_row_ptr = expected.load_row_ptr = {0};
      for (std::int64_t q = 0; q < array.shape.seq_q; q += 64) {
        for (std::int64_t k = 0; k < array.shape.seq_kv; k += 64) {
          const TileRect rect{q, std::min(q + 64, array.shape.seq_q), k,
                              std::min(k + 64, array.shape.seq_kv)};
          const TileClass found = array_mask(array).classify(b, h, rect);
          const auto col = static_cast<std::int32_t>(k / 64);
          if (found == TileClass::kFull) expected.full_col_idx.push_back(col);
          if (found == TileClass::kPartial) expected.part_col_idx.push_back(col);
          if (found != TileClass::kEmpty) expected.load_col_idx.push_back(col);
        }
        expected.full_row_ptr.push_back(std::ssize(expected.full_col_idx));
        expected.part_row_ptr.push_back(std::ssize(expected.part_col_idx));
        expected.load_row_ptr.push_back(std::ssize(expected.load_col_idx));
      }
      const BlockMaskArrays got = blocks.arrays(blocks.pattern_index(b, h));
      RC_ASSERT(got.full_row_ptr == expected.full_row_ptr);
      RC_ASSERT(got.full_col_idx == expected.full_col_idx);
      RC_ASSERT(got.part_row_ptr == expected.part_row_ptr);
      RC_ASSERT(got.part_col_idx == expected.part_col_idx);
      RC_ASSERT(got.load_row_ptr == expected.load_row_ptr);
      RC_ASSERT(got.load_col_idx == expected.load_col_idx);
      RC_ASSERT(got.part_bitmap.size() == got.part_col_idx.size());
    }
  }
}

RC_GTEST_PROP(Bitmap, UnpacksWhatWasPacked, ()) {
  TileRows rows;
  for (std::uint64_t& row : rows) row = *rc::gen::arbitrary<std::uint64_t>();
  const OuterBitmap bitmap = pack_bitmap(rows);
  RC_ASSERT(unpack_bitmap(bitmap) == rows);
  for (std::int64_t r = 0; r < 64; ++r)
    for (std::int64_t c = 0; c < 64; ++c)
      RC_ASSERT(bitmap_bit(bitmap, r, c) == ((rows[static_cast<std::size_t>(r)] >> c) & 1));
}

TEST(Bitmap, PutsInnerTilesColumnByColumn) {
  TileRows rows{};
  rows[9] = std::uint64_t{1} << 18;  // inner row 1, inner column 2; row 1, column 2 inside it
  OuterBitmap expected{};
  expected[2 * 8 + 1] = std::uint64_t{1} << (1 * 8 + 2);
  EXPECT_EQ(pack_bitmap(rows), expected);
}

TEST(BlockMask, StoresIdenticalBitmapsOnce) {
  const BlockMask blocks = build_block_mask(causal(), {1, 1, 1024, 1024});
  EXPECT_EQ(blocks.pattern(0).partial.size(), 16u);
  EXPECT_EQ(blocks.bitmaps().size(), 1u);
  EXPECT_EQ(blocks.pattern(0).full_runs.size(), 15u);
}

TEST(BlockMask, MergesFullTilesThatSubdivisionCut) {
  // 0..5 is found as [0,4) and [4,5).
  const BlockMask blocks = build_block_mask(prefix(5 * 64), {1, 1, 64, 640});
  ASSERT_EQ(blocks.pattern(0).full_runs.size(), 1u);
  EXPECT_EQ(blocks.pattern(0).full_runs[0], (FullRun{0, 5}));
  EXPECT_TRUE(blocks.bitmaps().empty());
}

TEST(BlockMask, SharesEqualHeads) {
  const Mask heads = per_head({causal(), window(8, 8), causal(), causal()});
  const BlockMask blocks = build_block_mask(heads, {2, 4, 200, 200});
  EXPECT_EQ(blocks.head_extent(), 4);
  EXPECT_EQ(blocks.batch_extent(), 1);
  EXPECT_EQ(blocks.num_patterns(), 2);
  EXPECT_EQ(blocks.pattern_index(1, 0), 0);
  EXPECT_EQ(blocks.pattern_index(1, 1), 1);
  EXPECT_EQ(blocks.pattern_index(0, 3), 0);
}

TEST(BlockMask, SharesEqualBatchEntries) {
  const Mask batches = per_batch({causal(), causal(), none()});
  const BlockMask blocks = build_block_mask(batches, {3, 2, 65, 65});
  EXPECT_EQ(blocks.num_patterns(), 2);
  EXPECT_TRUE(blocks.visible(1, 1, 64, 0));
  EXPECT_FALSE(blocks.visible(2, 0, 64, 0));
}

// Case 10: batch and head extents in {1, n} broadcast.
TEST(BlockMask, BroadcastsExtentsOfOne) {
  for (std::int64_t batch_extent : {1, 2}) {
    for (std::int64_t head_extent : {1, 2}) {
      BoolArray array{{2, 2, 8, 8}, batch_extent, head_extent, {}};
      for (std::int64_t i = 0; i < batch_extent * head_extent * 64; ++i)
        array.visible.push_back(i * 7 % 5 < 2);
      const BlockMask blocks = build_block_mask(array_mask(array), array.shape);
      EXPECT_EQ(blocks.num_patterns(), batch_extent * head_extent);
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t q = 0; q < 8; ++q)
            for (std::int64_t k = 0; k < 8; ++k)
              EXPECT_EQ(blocks.visible(b, h, q, k), array.at(b, h, q, k));
    }
  }
}

// Case 10: a mask of batch 3 on batch 2.
TEST(BlockMask, RefusesAMaskOfAnotherBatch) {
  try {
    build_block_mask(per_batch({all(), none(), all()}), {2, 1, 8, 8});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find('3'), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find('2'), std::string::npos) << error.what();
  }
}

TEST(BlockMask, RefusesEmptyShapes) {
  for (const ScoreShape& shape :
       {ScoreShape{0, 1, 8, 8}, ScoreShape{1, 0, 8, 8}, ScoreShape{1, 1, 0, 8},
        ScoreShape{1, 1, 8, 0}, ScoreShape{1, 1, 8, std::int64_t{1} << 31}}) {
    try {
      build_block_mask(all(), shape);
      FAIL() << shape.to_string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << shape.to_string();
    }
  }
}

// Case 7: a table of length S must not be asked past S inside the padded tile.
TEST(BlockMask, NeverAsksPastTheEnd) {
  for (const auto& [seq_q, seq_kv] : {std::pair{2046, 2046}, {40, 40}, {1, 65}, {129, 63}}) {
    BoolArray array{{1, 1, seq_q, seq_kv}, 1, 1, {}};
    for (std::int64_t i = 0; i < array.shape.seq_q * array.shape.seq_kv; ++i)
      array.visible.push_back(i % 3 == 0);
    // ArrayNode throws when it is.
    const BlockMask blocks = build_block_mask(array_mask(array), array.shape);
    blocks.validate();
    EXPECT_EQ(blocks.visible(0, 0, seq_q - 1, seq_kv - 1), array.at(0, 0, seq_q - 1, seq_kv - 1));
  }
}

// Case 7: documents of 1, 4, 9, ..., 100 tokens.
TEST(BlockMask, KeepsDocumentsOfOddLengthsApart) {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> owner;
  for (std::int64_t n = 1; n <= 10; ++n) {
    lengths.push_back(n * n);
    owner.insert(owner.end(), static_cast<std::size_t>(n * n), n);
  }
  const auto total = std::ssize(owner);
  const BlockMask blocks = build_block_mask(document(lengths), {1, 1, total, total});
  blocks.validate();
  for (std::size_t q = 0; q < owner.size(); ++q)
    for (std::size_t k = 0; k < owner.size(); ++k)
      ASSERT_EQ(blocks.visible(0, 0, static_cast<std::int64_t>(q), static_cast<std::int64_t>(k)),
                owner[q] == owner[k]);
}

// Case 8: the result of a long sliding window is small; its building is measured in bench/.
TEST(BlockMask, StaysSmallForALongWindow) {
  const BlockMask blocks = build_block_mask(window(256, 256), {1, 1, 96000, 96000});
  blocks.validate();
  EXPECT_LT(blocks.memory_bytes(), std::size_t{1} << 18);
  for (std::int64_t q : {0, 255, 256, 47999, 95743, 95999})
    for (std::int64_t k : {q - 257, q - 256, q - 64, q, q + 256, q + 257}) {
      if (k < 0 || k >= 96000) continue;
      EXPECT_EQ(blocks.visible(0, 0, q, k), std::abs(q - k) <= 256) << q << ' ' << k;
    }
}

// Case 9: past 46341 tokens, q * seq_kv + k does not fit 32 bits.
TEST(BlockMask, IndexesPast32Bits) {
  constexpr std::int64_t kLength = 1'000'003;
  const BlockMask blocks = build_block_mask(causal(), {1, 1, kLength, kLength});
  blocks.validate();
  EXPECT_TRUE(blocks.visible(0, 0, kLength - 1, 0));
  EXPECT_TRUE(blocks.visible(0, 0, kLength - 1, kLength - 1));
  EXPECT_TRUE(blocks.visible(0, 0, 500'000, 500'000));
  EXPECT_FALSE(blocks.visible(0, 0, 500'000, 500'001));
  EXPECT_FALSE(blocks.visible(0, 0, 0, kLength - 1));
  EXPECT_LT(blocks.memory_bytes(), std::size_t{1} << 20);
}

TEST(BlockMask, AlignsShortQueriesToTheEnd) {
  const BlockMask blocks = build_block_mask(causal(), {1, 1, 70, 200}, Alignment::kBottomRight);
  blocks.validate();
  for (std::int64_t q = 0; q < 70; ++q)
    for (std::int64_t k = 0; k < 200; ++k)
      ASSERT_EQ(blocks.visible(0, 0, q, k), k <= q + 130) << q << ' ' << k;
}

TEST(BlockMask, TellsMasksApartByFingerprint) {
  const ScoreShape shape{1, 1, 300, 300};
  const Fingerprint base = build_block_mask(causal(), shape).fingerprint();
  EXPECT_EQ(build_block_mask(~(~causal()), shape).fingerprint(), base);
  EXPECT_NE(build_block_mask(causal(1), shape).fingerprint(), base);
  EXPECT_NE(build_block_mask(causal(), {1, 1, 300, 301}).fingerprint(), base);
  EXPECT_NE(build_block_mask(causal(), {2, 1, 300, 300}).fingerprint(), base);
}

TEST(BlockMask, DescribesItselfInOneLine) {
  const std::string line = build_block_mask(causal(), {1, 1, 256, 256}).describe();
  EXPECT_NE(line.find("6 full + 4 partial + 6 empty"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace stof::mask
