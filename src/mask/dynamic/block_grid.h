#pragma once
// Query blocks against key blocks of one head.

#include <cstdint>
#include <vector>

#include "mask/dynamic/head.h"

namespace stof::mask {

/// Which blocks hold a visible pair, and which of those a pruner must keep. Blocks count from query
/// 0 and key 0; the last of either side may be short.
class BlockGrid {
 public:
  BlockGrid(const PruneHead& head, const PruneSettings& settings);

  std::int64_t num_rows() const { return rows_; }
  std::int64_t num_cols() const { return cols_; }
  bool visible(std::int64_t row, std::int64_t col) const { return state(row, col) != kHidden; }
  /// Visible, and a sink or near the diagonal.
  bool must_stay(std::int64_t row, std::int64_t col) const { return state(row, col) == kStays; }
  std::int64_t num_visible(std::int64_t row) const {
    return visible_[static_cast<std::size_t>(row)];
  }
  std::int64_t num_staying(std::int64_t row) const {
    return staying_[static_cast<std::size_t>(row)];
  }
  std::int64_t total_visible() const;
  /// The largest num_staying().
  std::int64_t most_staying() const;
  /// The key block that query block `row` begins in; it may lie outside.
  std::int64_t diagonal(std::int64_t row) const;

 private:
  enum State : std::uint8_t { kHidden, kVisible, kStays };
  State state(std::int64_t row, std::int64_t col) const {
    return states_[static_cast<std::size_t>(row * cols_ + col)];
  }

  std::int64_t block_, rows_, cols_, query_offset_;
  std::vector<State> states_;          ///< [rows, cols]
  std::vector<std::int64_t> visible_;  ///< blocks by row
  std::vector<std::int64_t> staying_;
};

/// block_topk: how many blocks a row keeps, of which rows with fewer keep all.
std::int64_t blocks_to_keep(const BlockGrid& grid, double keep);

/// One vector for each block of rows: pooled over those that `counts` says are any pair's, zeros
/// where none is. A NaN stays one. [blocks, dim]
std::vector<float> pool_rows(const FloatRows& rows, const std::vector<std::uint8_t>& counts,
                             std::int64_t block, PrunePooling pooling);

/// Which queries see a key, and which keys are seen.
struct UsedRows {
  std::vector<std::uint8_t> queries, keys;
  explicit UsedRows(const PruneHead& head);
};

/// The mask of those blocks: columns[row] ascends.
Mask mask_of_blocks(std::vector<std::vector<std::int32_t>> columns, std::int64_t block);

}  // namespace stof::mask
