#pragma once
// Reading one BlockPattern: its rows as spans, and its content hash.

#include <algorithm>
#include <cstdint>
#include <span>

#include "stof/block_mask.h"

namespace stof::mask {

inline std::span<const FullRun> full_runs_of_row(const BlockPattern& pattern, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  return {pattern.full_runs.data() + pattern.full_run_ptr[r],
          pattern.full_runs.data() + pattern.full_run_ptr[r + 1]};
}

inline std::span<const PartialTile> partial_of_row(const BlockPattern& pattern, std::int64_t row) {
  const auto r = static_cast<std::size_t>(row);
  return {pattern.partial.data() + pattern.partial_ptr[r],
          pattern.partial.data() + pattern.partial_ptr[r + 1]};
}

/// Elements that outer tile `index` of a side of `length` covers: 64, or less at the ragged end.
inline std::int64_t tile_extent(std::int64_t index, std::int64_t length) {
  return std::min(kOuterTile, length - index * kOuterTile);
}

inline std::int64_t num_full_tiles(const BlockPattern& pattern) {
  std::int64_t tiles = 0;
  for (const FullRun& run : pattern.full_runs) tiles += run.end - run.begin;
  return tiles;
}

/// Of the four arrays; bitmaps are named by index only.
Fingerprint pattern_fingerprint(const BlockPattern& pattern);

}  // namespace stof::mask
