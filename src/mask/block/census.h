#pragma once
// Counts inside one outer tile, and of 128x128 tiles over a pair of tile rows.

#include <cstdint>

#include "mask/block/pattern.h"
#include "stof/block_mask.h"

namespace stof::mask {

/// Full and partial tiles of one size; the rest are empty.
struct TileCounts {
  std::int64_t full = 0, partial = 0;

  TileCounts& operator+=(const TileCounts& other) {
    full += other.full;
    partial += other.partial;
    return *this;
  }
};

/// What a partial tile adds to the statistics.
struct BitmapCensus {
  std::int64_t visible = 0;
  std::uint64_t rows_seen = 0;  ///< bit r: row r has a visible key
  TileCounts by_8, by_16;
};

/// Only the first `rows` x `cols` elements exist; an inner tile cut by that edge is full when all
/// of its existing elements are visible.
BitmapCensus census_of(const OuterBitmap& bitmap, std::int64_t rows, std::int64_t cols);

/// 128x128 tiles of tile rows `row` (even) and `row` + 1, by arithmetic on runs.
TileCounts census_of_row_pair(const BlockPattern& pattern, std::int64_t row,
                              std::int64_t num_tile_rows, std::int64_t num_tile_cols);

}  // namespace stof::mask
