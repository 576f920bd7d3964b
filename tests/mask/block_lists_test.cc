// Block lists of every size end up as the same pairs in 64x64 tiles.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask {
namespace {

using Sizes = std::vector<std::int64_t>;
using Rows = std::vector<std::vector<std::int32_t>>;

/// The block of every token.
std::vector<std::size_t> owners(const Sizes& sizes) {
  std::vector<std::size_t> owner;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    owner.insert(owner.end(), static_cast<std::size_t>(sizes[i]), i);
  return owner;
}

/// Blocks of `block` tokens over `length`, the last one ragged.
Sizes uniform(std::int64_t block, std::int64_t length) {
  Sizes sizes;
  for (std::int64_t at = 0; at < length; at += block) sizes.push_back(std::min(block, length - at));
  return sizes;
}

/// Compares every pair of a block mask with the lists themselves.
void expect_lists(const BlockMask& blocks, const Sizes& row_sizes, const Sizes& col_sizes,
                  const Rows& rows) {
  blocks.validate();
  const auto row_of = owners(row_sizes), col_of = owners(col_sizes);
  ASSERT_EQ(std::ssize(row_of), blocks.shape().seq_q);
  ASSERT_EQ(std::ssize(col_of), blocks.shape().seq_kv);
  for (std::size_t q = 0; q < row_of.size(); ++q)
    for (std::size_t k = 0; k < col_of.size(); ++k) {
      const auto& listed = rows[row_of[q]];
      const bool expected = std::find(listed.begin(), listed.end(),
                                      static_cast<std::int32_t>(col_of[k])) != listed.end();
      ASSERT_EQ(blocks.visible(0, 0, static_cast<std::int64_t>(q), static_cast<std::int64_t>(k)),
                expected)
          << "query " << q << ", key " << k;
    }
}

BlockMask build_uniform(std::int64_t block_q, std::int64_t block_kv, std::int64_t seq_q,
                        std::int64_t seq_kv, const Rows& rows) {
  BlockList list;
  list.block_q = block_q;
  list.block_kv = block_kv;
  list.heads = {rows};
  return build_block_mask(block_list(list), {1, 1, seq_q, seq_kv});
}

// Case 13: 256-blocks on a 4x4 grid.
TEST(BlockListTiles, HonourListsOfLargeBlocks) {
  const Rows rows = {{0, 2}, {1, 3}, {0, 3}, {2, 3}};
  const BlockMask blocks = build_uniform(256, 256, 1024, 1024, rows);
  expect_lists(blocks, uniform(256, 1024), uniform(256, 1024), rows);
  EXPECT_TRUE(blocks.bitmaps().empty());
  EXPECT_DOUBLE_EQ(compute_stats(blocks).element_density, 0.5);
}

// Case 14: compact lists of one column a row, block 32.
TEST(BlockListTiles, HonourCompactLists) {
  const Rows rows = {{0}, {1}, {2}};
  expect_lists(build_uniform(32, 32, 96, 96, rows), uniform(32, 96), uniform(32, 96), rows);
}

// Case 14: unsorted lists, and keys that end inside a tile and a block.
TEST(BlockListTiles, HonourUnsortedListsOverARaggedEnd) {
  const Rows rows = {{3, 0}, {2, 1, 3}, {}};
  expect_lists(build_uniform(48, 48, 130, 150, rows), uniform(48, 130), uniform(48, 150), rows);
}

// Case 14: duplicate entries.
TEST(BlockListTiles, RefuseDuplicates) {
  try {
    build_uniform(32, 32, 64, 64, {{0, 1, 0}, {1}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("block_list"));
  }
}

// Case 15.
TEST(BlockListTiles, HonourEveryBlockSize) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{16, 16},   {32, 32},  {64, 64}, {96, 96},
                                                         {128, 128}, {64, 128}, {128, 64}};
  constexpr std::int64_t kQueries = 300, kKeys = 321;
  for (const auto& [block_q, block_kv] : sizes) {
    const Sizes row_sizes = uniform(block_q, kQueries), col_sizes = uniform(block_kv, kKeys);
    Rows rows(row_sizes.size());
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::size_t c = 0; c < col_sizes.size(); ++c)
        if ((r * 5 + c * 3) % 4 < 2) rows[r].push_back(static_cast<std::int32_t>(c));
    SCOPED_TRACE(std::to_string(block_q) + "x" + std::to_string(block_kv));
    expect_lists(build_uniform(block_q, block_kv, kQueries, kKeys, rows), row_sizes, col_sizes,
                 rows);
  }
}

BlockMask build_ragged(const Sizes& row_sizes, const Sizes& col_sizes, const Rows& rows) {
  BlockList list;
  list.row_sizes = row_sizes;
  list.col_sizes = col_sizes;
  list.heads = {rows};
  return build_block_mask(block_list(list),
                          {1, 1, std::ssize(owners(row_sizes)), std::ssize(owners(col_sizes))});
}

// Case 18: block rows of 1, 2, 3 and block columns of 3, 1, 2 tokens.
TEST(BlockListTiles, HonourRaggedBlocks) {
  const Sizes row_sizes = {1, 2, 3}, col_sizes = {3, 1, 2};
  const Rows rows = {{0, 2}, {1}, {0, 1}};
  expect_lists(build_ragged(row_sizes, col_sizes, rows), row_sizes, col_sizes, rows);
}

// Case 42: a 5x6x7 grid in tiles of 4x4x4 tokens; half of the eight blocks kept is four.
TEST(BlockListTiles, HonourTheBlocksOfATokenGrid) {
  const Sizes sizes = {64, 48, 32, 24, 16, 12, 8, 6};
  Rows rows(8);
  std::int64_t pairs = 0;
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t c = 0; c < 8; ++c)
      if ((c + r) % 2 == 0) {
        rows[r].push_back(static_cast<std::int32_t>(c));
        pairs += sizes[r] * sizes[c];
      }
  const BlockMask blocks = build_ragged(sizes, sizes, rows);
  expect_lists(blocks, sizes, sizes, rows);
  EXPECT_EQ(compute_stats(blocks).visible_pairs, pairs);
}

// Case 43: blocks that no 64-row tile matches, 18,200 tokens, and a text tail.
TEST(BlockListTiles, HonourBlocksOfALongSequenceWithATail) {
  for (const auto& [block_q, block_kv] :
       {std::pair<std::int64_t, std::int64_t>{128, 64}, {64, 128}}) {
    for (const std::int64_t tail : {0, 77}) {
      const std::int64_t length = 18200 + tail;
      const Sizes row_sizes = uniform(block_q, length), col_sizes = uniform(block_kv, length);
      Rows rows(row_sizes.size());
      std::int64_t pairs = 0;
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t c = r % 7; c < col_sizes.size(); c += 7) {
          rows[r].push_back(static_cast<std::int32_t>(c));
          pairs += row_sizes[r] * col_sizes[c];
        }
      const BlockMask blocks = build_uniform(block_q, block_kv, length, length, rows);
      blocks.validate();
      EXPECT_EQ(compute_stats(blocks).visible_pairs, pairs);
      for (std::int64_t q = 0; q < length; q += 331)
        for (std::int64_t k = 0; k < length; ++k)
          ASSERT_EQ(blocks.visible(0, 0, q, k), (k / block_kv) % 7 == (q / block_q) % 7)
              << "query " << q << ", key " << k;
    }
  }
}

}  // namespace
}  // namespace stof::mask
