#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mask/array_node.h"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask {
namespace {

using testing::array_mask;
using testing::BoolArray;
using testing::random_array;

/// Every number of the statistics, from every pair of every (batch, head).
BlockMaskStats stats_by_pairs(const BoolArray& array) {
  const ScoreShape& s = array.shape;
  const Mask mask = array_mask(array);
  BlockMaskStats stats;
  for (std::int64_t tile : {8, 16, 64, 128}) stats.tiles.push_back({tile, 0, 0, 0});
  std::int64_t longest = 0, loaded = 0, tile_rows = 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.num_heads; ++h) {
      for (std::int64_t q = 0; q < s.seq_q; ++q) {
        std::int64_t seen = 0;
        for (std::int64_t k = 0; k < s.seq_kv; ++k) seen += array.at(b, h, q, k);
        stats.visible_pairs += seen;
        stats.empty_rows += seen == 0;
      }
      for (TileCensus& census : stats.tiles) {
        for (std::int64_t q = 0; q < s.seq_q; q += census.tile) {
          std::int64_t in_row = 0;
          for (std::int64_t k = 0; k < s.seq_kv; k += census.tile) {
            const TileClass found = mask.classify(
                b, h,
                {q, std::min(q + census.tile, s.seq_q), k, std::min(k + census.tile, s.seq_kv)});
            census.full += found == TileClass::kFull;
            census.partial += found == TileClass::kPartial;
            census.empty += found == TileClass::kEmpty;
            in_row += found != TileClass::kEmpty;
          }
          if (census.tile != 64) continue;
          longest = std::max(longest, in_row);
          loaded += in_row;
          ++tile_rows;
        }
      }
    }
  }
  stats.element_density = static_cast<double>(stats.visible_pairs) /
                          static_cast<double>(s.batch * s.num_heads * s.seq_q * s.seq_kv);
  if (loaded > 0)
    stats.row_imbalance =
        static_cast<double>(longest) * static_cast<double>(tile_rows) / static_cast<double>(loaded);
  return stats;
}

RC_GTEST_PROP(BlockMaskStats, CountWhatEveryPairSays, ()) {
  const BoolArray array = random_array();
  const BlockMaskStats expected = stats_by_pairs(array);
  const BlockMaskStats got = compute_stats(build_block_mask(array_mask(array), array.shape));
  RC_ASSERT(got.visible_pairs == expected.visible_pairs);
  RC_ASSERT(got.empty_rows == expected.empty_rows);
  RC_ASSERT(std::abs(got.element_density - expected.element_density) < 1e-12);
  RC_ASSERT(std::abs(got.row_imbalance - expected.row_imbalance) < 1e-9);
  RC_ASSERT(got.tiles.size() == expected.tiles.size());
  for (std::size_t i = 0; i < got.tiles.size(); ++i) {
    RC_LOG() << "tile " << expected.tiles[i].tile << "\n";
    RC_ASSERT(got.tiles[i].tile == expected.tiles[i].tile);
    RC_ASSERT(got.tiles[i].full == expected.tiles[i].full);
    RC_ASSERT(got.tiles[i].partial == expected.tiles[i].partial);
    RC_ASSERT(got.tiles[i].empty == expected.tiles[i].empty);
  }
}

// Case 22: all and none at S=100, where every tile is ragged.
TEST(BlockMaskStats, KeepDensityWithinZeroAndOne) {
  const BlockMaskStats everything = compute_stats(build_block_mask(all(), {1, 1, 100, 100}));
  const BlockMaskStats nothing = compute_stats(build_block_mask(none(), {1, 1, 100, 100}));
  EXPECT_EQ(everything.element_density, 1.0);
  EXPECT_EQ(nothing.element_density, 0.0);
  EXPECT_EQ(everything.visible_pairs, 10000);
  EXPECT_EQ(nothing.empty_rows, 100);
  EXPECT_EQ(nothing.row_imbalance, 0.0);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(everything.tiles[i].density(), 1.0) << everything.tiles[i].tile;
    EXPECT_EQ(everything.tiles[i].partial, 0) << everything.tiles[i].tile;
    EXPECT_EQ(nothing.tiles[i].density(), 0.0) << nothing.tiles[i].tile;
  }
  EXPECT_EQ(everything.tiles[3].full, 1);  // one 128-wide tile
}

TEST(BlockMaskStats, CountAMillionRowsByArithmetic) {
  constexpr std::int64_t kLength = std::int64_t{1} << 20;
  const BlockMaskStats stats = compute_stats(build_block_mask(causal(), {2, 3, kLength, kLength}));
  EXPECT_EQ(stats.visible_pairs, 6 * (kLength * (kLength + 1) / 2));
  for (const TileCensus& census : stats.tiles) {
    const std::int64_t side = kLength / census.tile;
    EXPECT_EQ(census.partial, 6 * side) << census.tile;
    EXPECT_EQ(census.full, 6 * (side * (side - 1) / 2)) << census.tile;
    EXPECT_EQ(census.empty, 6 * (side * (side - 1) / 2)) << census.tile;
  }
  EXPECT_EQ(stats.distinct_bitmaps, 1);
  EXPECT_EQ(stats.empty_rows, 0);
}

TEST(BlockMaskStats, RefuseCountsThatDoNotFit) {
  constexpr std::int64_t kLength = 0x7FFFFFFF;
  // One tile row, so that the mask itself is small; 2^31 keys x 2^31 heads x 64 rows do not fit.
  const BlockMask mask = build_block_mask(all(), {16, kLength, 64, kLength});
  EXPECT_THROW(compute_stats(mask), Error);
}

TEST(BlockMaskStats, WeighPatternsByTheirUse) {
  const BlockMask mask = build_block_mask(per_head({all(), none(), all()}), {5, 3, 10, 10});
  const BlockMaskStats stats = compute_stats(mask);
  EXPECT_EQ(stats.visible_pairs, 5 * 2 * 100);
  EXPECT_EQ(stats.empty_rows, 5 * 10);
  EXPECT_DOUBLE_EQ(stats.element_density, 2.0 / 3);
  EXPECT_DOUBLE_EQ(stats.row_imbalance, 1.5);
}

TEST(BlockMaskStats, PrintAsJson) {
  const BlockMaskStats stats = compute_stats(build_block_mask(causal(), {1, 1, 128, 128}));
  const auto json = nlohmann::json::parse(stats.to_json());
  EXPECT_EQ(json["visible_pairs"], 128 * 129 / 2);
  EXPECT_EQ(json["tiles"][2]["full"], 1);
  EXPECT_EQ(json["tiles"][2]["partial"], 2);
  EXPECT_EQ(json["tiles"][2]["empty"], 1);
  EXPECT_DOUBLE_EQ(json["tiles"][2]["density"].get<double>(), 0.75);
}

}  // namespace
}  // namespace stof::mask
