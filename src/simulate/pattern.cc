// A mask as strips and steps of instructions see it.

#include <algorithm>
#include <bit>

#include "core/bits.h"
#include "core/check.h"
#include "mask/block/bitmap.h"
#include "mask/block/pattern.h"
#include "stof/simulate.h"

namespace stof::simulate {
namespace {

using mask::TileRows;

constexpr std::int64_t kStripRows = kTileRows / kStrips;
constexpr std::int64_t kStepKeys = kTileKeys / kSteps;

std::uint8_t most_of_groups(std::uint64_t keys, std::int64_t group) {
  int most = 0;
  for (std::int64_t first = 0; first < kStepKeys; first += group)
    most = std::max(most, std::popcount(keys >> first & low_bits(group)));
  return static_cast<std::uint8_t>(most);
}

/// The first n of each group.
std::uint64_t first_of_groups(std::uint64_t keys, std::int64_t n, std::int64_t group) {
  std::uint64_t kept = 0;
  for (std::int64_t first = 0; first < kTileKeys; first += group) {
    std::uint64_t rest = keys & (low_bits(group) << first);
    for (std::int64_t i = 0; i < n && rest != 0; ++i, rest &= rest - 1) kept |= rest & (~rest + 1);
  }
  return kept;
}

PatternTile tile_of(const TileRows& rows, std::int64_t row, std::int64_t col, std::int64_t group) {
  PatternTile tile;
  tile.row = static_cast<std::int32_t>(row);
  tile.col = static_cast<std::int32_t>(col);
  for (std::size_t q = 0; q < rows.size(); ++q) {
    tile.pairs += std::popcount(rows[q]);
    const std::size_t strip = q / kStripRows;
    for (std::size_t step = 0; step < kSteps; ++step) {
      const std::uint64_t keys = rows[q] >> (step * kStepKeys) & low_bits(kStepKeys);
      std::uint8_t& most = tile.of_group[strip][step];
      most = std::max(most, most_of_groups(keys, group));
      std::uint8_t& of_four = tile.of_four[strip][step];
      of_four = std::max(of_four, most_of_groups(keys, 4));
    }
  }
  return tile;
}

Pattern make_pattern(const mask::BlockMask& mask, std::int64_t b, std::int64_t h, std::int64_t n,
                     std::int64_t group) {
  STOF_CHECK(group == 2 || group == 4 || group == 8 || group == 16 || group == 32, kInvalidArgument,
             "group: expected M of 2, 4, 8, 16 or 32, got {}", group);
  STOF_CHECK(n >= 1 && n <= group, kInvalidArgument, "n: expected 1 to {}, got {}", group, n);
  const mask::ScoreShape& shape = mask.shape();
  STOF_CHECK(b >= 0 && b < shape.batch && h >= 0 && h < shape.num_heads, kInvalidArgument,
             "pattern: expected a batch entry and head inside {}, got {}, {}", shape.to_string(), b,
             h);
  Pattern pattern{shape.seq_q, shape.seq_kv, group, {}};
  const mask::BlockPattern& blocks = mask.pattern(mask.pattern_index(b, h));
  const auto add = [&](TileRows rows, std::int64_t row, std::int64_t col) {
    if (n < group)
      for (std::uint64_t& keys : rows) keys = first_of_groups(keys, n, group);
    pattern.tiles.push_back(tile_of(rows, row, col, group));
  };
  for (std::int64_t row = 0; row < mask.num_tile_rows(); ++row) {
    const std::size_t begin = pattern.tiles.size();
    const std::int64_t num_rows = mask::tile_extent(row, shape.seq_q);
    for (const mask::FullRun& run : mask::full_runs_of_row(blocks, row))
      for (std::int64_t col = run.begin; col < run.end; ++col) {
        TileRows rows{};
        std::fill_n(rows.begin(), num_rows, low_bits(mask::tile_extent(col, shape.seq_kv)));
        add(rows, row, col);
      }
    for (const mask::PartialTile& tile : mask::partial_of_row(blocks, row))
      add(mask::unpack_bitmap(mask.bitmaps()[static_cast<std::size_t>(tile.bitmap)]), row,
          tile.col);
    std::sort(pattern.tiles.begin() + static_cast<std::ptrdiff_t>(begin), pattern.tiles.end(),
              [](const PatternTile& x, const PatternTile& y) { return x.col < y.col; });
  }
  return pattern;
}

}  // namespace

std::int64_t Pattern::visible_pairs() const {
  std::int64_t pairs = 0;
  for (const PatternTile& tile : tiles) pairs += tile.pairs;
  return pairs;
}

Pattern pattern_of(const mask::BlockMask& mask, std::int64_t b, std::int64_t h,
                   std::int64_t group) {
  return make_pattern(mask, b, h, group, group);
}

Pattern uniform_pattern(const mask::BlockMask& mask, std::int64_t n, std::int64_t group) {
  return make_pattern(mask, 0, 0, n, group);
}

}  // namespace stof::simulate
