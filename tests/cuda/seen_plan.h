#pragma once
// Plans as attention kernels see them, to compare those made on the GPU with the host's.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "codegen/attention.h"

namespace stof::cuda {

/// A plan as the attention kernel sees it: where each record stands, and the payload bits of every
/// tile it walks (empty: all bits).
struct SeenPlan {
  std::vector<std::tuple<int, int, int>> order;  // batch, head, q_row
  std::map<std::tuple<int, int, int>, std::map<int, std::vector<std::uint32_t>>> tiles;
};

template <class Record, class Partial, class Run>
SeenPlan seen_plan(const std::vector<Record>& records, const Partial* partial, const Run* runs,
                   const std::vector<std::uint32_t>& payloads,
                   const codegen::AttentionConfig& config) {
  SeenPlan seen;
  const int words = config.payload_bytes() / 4;
  for (const Record& record : records) {
    const std::tuple<int, int, int> key{record.batch, record.head, record.q_row};
    EXPECT_EQ(seen.tiles.count(key), 0u) << "a query tile comes twice";
    EXPECT_GE(record.num_partial + record.num_full, 1);
    EXPECT_EQ(record.part, -1);
    auto& tiles = seen.tiles[key];
    for (int i = 0; i < record.num_partial; ++i) {
      const auto& tile = partial[record.partial_begin + i];
      const auto at = payloads.begin() + std::ptrdiff_t{words} * tile.payload;
      EXPECT_TRUE(tiles.try_emplace(tile.tile, at, at + words).second) << "tile " << tile.tile;
    }
    for (int i = 0, run = record.run_begin; i < record.num_full; ++run) {
      EXPECT_LT(runs[run].begin, runs[run].end) << "an empty run before others";
      for (int tile = runs[run].begin; tile < runs[run].end && i < record.num_full; ++tile, ++i)
        EXPECT_TRUE(tiles.try_emplace(tile).second) << "tile " << tile;
      if (runs[run].begin >= runs[run].end) break;
    }
    seen.order.push_back(key);
  }
  return seen;
}

inline void expect_equal(const SeenPlan& seen, const SeenPlan& expected) {
  EXPECT_EQ(seen.order, expected.order);
  ASSERT_EQ(seen.tiles.size(), expected.tiles.size());
  for (const auto& [key, tiles] : expected.tiles) {
    const auto found = seen.tiles.find(key);
    ASSERT_NE(found, seen.tiles.end());
    EXPECT_EQ(found->second, tiles) << "batch " << std::get<0>(key) << " head " << std::get<1>(key)
                                    << " row " << std::get<2>(key);
  }
}

inline codegen::AttentionConfig small_config(int rows, int tile_kv) {
  codegen::AttentionConfig config;
  config.family = codegen::KernelFamily::kSm80;  // never shares a query tile between blocks
  config.head_dim_qk = config.head_dim_v = 64;
  config.warpgroups = 1;
  config.warp_slabs = rows / 64;
  config.tile_kv = tile_kv;
  return config;
}

}  // namespace stof::cuda
