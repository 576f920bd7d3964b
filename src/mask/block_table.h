#pragma once
// BlockTable: the visible blocks of a grid, row by row; shared by block lists and random blocks.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stof/mask.h"

namespace stof::mask {

/// Compressed rows; the columns of a row ascend and are distinct.
struct BlockTable {
  std::vector<std::int64_t> row_ptr{0};
  std::vector<std::int32_t> cols;

  std::int64_t num_rows() const { return static_cast<std::int64_t>(row_ptr.size()) - 1; }
  void end_row() { row_ptr.push_back(static_cast<std::int64_t>(cols.size())); }

  /// The listed columns of a row in [begin, end).
  std::span<const std::int32_t> columns(std::int64_t row, std::int64_t begin,
                                        std::int64_t end) const {
    const auto r = static_cast<std::size_t>(row);
    const auto first =
        std::lower_bound(cols.begin() + row_ptr[r], cols.begin() + row_ptr[r + 1], begin);
    const auto last = std::lower_bound(first, cols.begin() + row_ptr[r + 1], end);
    return {first, last};
  }

  /// Class of blocks [row_begin, row_end) x [col_begin, col_end), not empty. Looks at one row after
  /// the other until it has met a visible and a hidden block.
  TileClass classify(std::int64_t row_begin, std::int64_t row_end, std::int64_t col_begin,
                     std::int64_t col_end) const {
    bool some = false, every = true;
    for (std::int64_t row = row_begin; row < row_end && !(some && !every); ++row) {
      const auto found = static_cast<std::int64_t>(columns(row, col_begin, col_end).size());
      some |= found > 0;
      every &= found == col_end - col_begin;
    }
    return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
  }
};

}  // namespace stof::mask
