#include "mask/dynamic/block_grid.h"

#include <algorithm>
#include <numeric>

#include "core/bits.h"
#include "mask/block/row_bits.h"
#include "mask/dynamic/jobs.h"
#include "mask/interval.h"

namespace stof::mask {
namespace {

/// classify() may say "partial" of what turns out to be empty: halves are asked, then pairs.
bool sees_a_pair(const PruneHead& head, const TileRect& rect) {
  switch (head.base->classify(head.b, head.h, rect)) {
    case TileClass::kEmpty:
      return false;
    case TileClass::kFull:
      return true;
    case TileClass::kPartial:
      break;
  }
  const std::int64_t rows = rect.q_end - rect.q_begin, keys = rect.k_end - rect.k_begin;
  constexpr std::int64_t kFewRows = 8;
  if (keys > 64 && keys >= rows) {
    const std::int64_t middle = rect.k_begin + keys / 2;
    return sees_a_pair(head, {rect.q_begin, rect.q_end, rect.k_begin, middle}) ||
           sees_a_pair(head, {rect.q_begin, rect.q_end, middle, rect.k_end});
  }
  if (rows > kFewRows) {
    const std::int64_t middle = rect.q_begin + rows / 2;
    return sees_a_pair(head, {rect.q_begin, middle, rect.k_begin, rect.k_end}) ||
           sees_a_pair(head, {middle, rect.q_end, rect.k_begin, rect.k_end});
  }
  for (std::int64_t q = rect.q_begin; q < rect.q_end; ++q)
    if (row_bits_within(*head.base, head.b, head.h, q, rect.k_begin, keys, head.k.rows) != 0)
      return true;
  return false;
}

/// The smallest number of blocks a row that, with short rows whole, keeps that share of all.
std::int64_t num_for_fraction(const BlockGrid& grid, double keep) {
  const double wanted = keep * static_cast<double>(grid.total_visible());
  std::int64_t low = 0, high = grid.num_cols();
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    std::int64_t kept = 0;
    for (std::int64_t row = 0; row < grid.num_rows(); ++row)
      kept += std::min(middle, grid.num_visible(row));
    if (static_cast<double>(kept) >= wanted)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

std::int64_t blocks_to_keep(const BlockGrid& grid, double keep) {
  if (keep >= 1) return grid.num_cols();
  return std::max({std::int64_t{1}, num_for_fraction(grid, keep), grid.most_staying()});
}

BlockGrid::BlockGrid(const PruneHead& head, const PruneSettings& settings)
    : block_(settings.block),
      rows_(ceil_div(head.q.rows, block_)),
      cols_(ceil_div(head.k.rows, block_)),
      query_offset_(head.query_offset) {
  states_.resize(static_cast<std::size_t>(rows_ * cols_));
  visible_.resize(static_cast<std::size_t>(rows_));
  staying_.resize(static_cast<std::size_t>(rows_));
  const bool sees_all = head.sees_all();
  run_jobs(rows_, head.num_threads, [&](std::int64_t row) {
    const std::int64_t q_begin = row * block_, q_end = std::min(q_begin + block_, head.q.rows);
    const std::int64_t first = diagonal(row), last = floor_div(q_end - 1 + query_offset_, block_);
    for (std::int64_t col = 0; col < cols_; ++col) {
      const TileRect rect{q_begin, q_end, col * block_, std::min((col + 1) * block_, head.k.rows)};
      if (!sees_all && !sees_a_pair(head, rect)) continue;
      const bool stays = col < settings.sink_blocks || (col > first - settings.local_blocks &&
                                                        col < last + settings.local_blocks);
      states_[static_cast<std::size_t>(row * cols_ + col)] = stays ? kStays : kVisible;
      visible_[static_cast<std::size_t>(row)] += 1;
      staying_[static_cast<std::size_t>(row)] += stays ? 1 : 0;
    }
  });
}

std::int64_t BlockGrid::total_visible() const {
  return std::accumulate(visible_.begin(), visible_.end(), std::int64_t{0});
}

std::int64_t BlockGrid::most_staying() const {
  return staying_.empty() ? 0 : *std::max_element(staying_.begin(), staying_.end());
}

std::int64_t BlockGrid::diagonal(std::int64_t row) const {
  return floor_div(row * block_ + query_offset_, block_);
}

UsedRows::UsedRows(const PruneHead& head)
    : queries(static_cast<std::size_t>(head.q.rows), 1),
      keys(static_cast<std::size_t>(head.k.rows), 1) {
  if (head.sees_all()) return;
  run_jobs(head.q.rows, head.num_threads, [&](std::int64_t q) {
    queries[static_cast<std::size_t>(q)] = sees_a_pair(head, {q, q + 1, 0, head.k.rows}) ? 1 : 0;
  });
  run_jobs(head.k.rows, head.num_threads, [&](std::int64_t k) {
    keys[static_cast<std::size_t>(k)] = sees_a_pair(head, {0, head.q.rows, k, k + 1}) ? 1 : 0;
  });
}

std::vector<float> pool_rows(const FloatRows& rows, const std::vector<std::uint8_t>& counts,
                             std::int64_t block, PrunePooling pooling) {
  const std::int64_t blocks = ceil_div(rows.rows, block);
  std::vector<float> pooled(static_cast<std::size_t>(blocks * rows.dim));
  std::vector<double> vector(static_cast<std::size_t>(rows.dim));
  for (std::int64_t i = 0; i < blocks; ++i) {
    std::int64_t count = 0;
    std::fill(vector.begin(), vector.end(), 0.0);
    for (std::int64_t r = i * block; r < std::min((i + 1) * block, rows.rows); ++r) {
      if (counts[static_cast<std::size_t>(r)] == 0) continue;
      const float* const row = rows.row(r);
      const bool is_first = count++ == 0;
      for (std::size_t d = 0; d < vector.size(); ++d) {
        const double x = row[d];
        // A NaN that came before stays: nothing is above it.
        if (pooling == PrunePooling::kMean)
          vector[d] += x;
        else if (is_first || x > vector[d] || x != x)
          vector[d] = x;
      }
    }
    const double divisor =
        pooling == PrunePooling::kMean && count > 0 ? static_cast<double>(count) : 1;
    for (std::size_t d = 0; d < vector.size(); ++d)
      pooled[static_cast<std::size_t>(i * rows.dim) + d] = static_cast<float>(vector[d] / divisor);
  }
  return pooled;
}

Mask mask_of_blocks(std::vector<std::vector<std::int32_t>> columns, std::int64_t block) {
  BlockList list;
  list.block_q = list.block_kv = block;
  list.heads.push_back(std::move(columns));
  return block_list(std::move(list));
}

}  // namespace stof::mask
