#include "mask/block/census.h"

#include <algorithm>
#include <bit>

#include "mask/block/bitmap.h"

namespace stof::mask {
namespace {

/// Bit r of the low byte: row r of the inner tile has a visible key.
std::uint64_t rows_seen_in(std::uint64_t word) {
  std::uint64_t rows = 0;
  for (int r = 0; r < 8; ++r) rows |= std::uint64_t{((word >> (r * 8)) & 0xFF) != 0} << r;
  return rows;
}

void count_tile(bool any, bool all, TileCounts& counts) {
  counts.full += all;
  counts.partial += any && !all;
}

/// Full columns of a pair of rows: runs of both overlapped, or of the only one there is.
std::int64_t count_full_128(std::span<const FullRun> upper, std::span<const FullRun> lower,
                            std::int64_t num_tile_cols) {
  std::int64_t count = 0;
  auto u = upper.begin(), l = lower.begin();
  while (u != upper.end() && l != lower.end()) {
    const std::int64_t begin = std::max(u->begin, l->begin);
    const std::int64_t end = std::min(u->end, l->end);
    if (begin < end) {
      const std::int64_t first = (begin + 1) / 2;
      // A last column without a right neighbour is a whole 128-tile by itself.
      const std::int64_t last = end == num_tile_cols ? (end + 1) / 2 : end / 2;
      count += std::max<std::int64_t>(0, last - first);
    }
    u->end < l->end ? ++u : ++l;
  }
  return count;
}

/// Counts the 128-columns under ranges of tiles that come in ascending order of their begins.
class NonEmptyCounter {
 public:
  void add(std::int64_t tile_begin, std::int64_t tile_end) {
    const std::int64_t begin = std::max(tile_begin / 2, covered_);
    const std::int64_t end = (tile_end + 1) / 2;
    if (end <= begin) return;
    count_ += end - begin;
    covered_ = end;
  }
  std::int64_t count() const { return count_; }

 private:
  std::int64_t covered_ = 0, count_ = 0;
};

std::int64_t count_non_empty_128(const BlockPattern& pattern, std::int64_t row_begin,
                                 std::int64_t row_end) {
  std::span<const FullRun> runs[2];
  std::span<const PartialTile> partial[2];
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    runs[row - row_begin] = full_runs_of_row(pattern, row);
    partial[row - row_begin] = partial_of_row(pattern, row);
  }
  NonEmptyCounter counter;
  for (;;) {
    constexpr FullRun kNone{INT32_MAX, INT32_MAX};
    FullRun next = kNone;  // the one that begins first
    bool is_run = false;
    std::size_t from = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      if (!runs[i].empty() && runs[i].front().begin < next.begin) {
        next = runs[i].front();
        is_run = true;
        from = i;
      }
      if (!partial[i].empty() && partial[i].front().col < next.begin) {
        next = {partial[i].front().col, partial[i].front().col + 1};
        is_run = false;
        from = i;
      }
    }
    if (next == kNone) return counter.count();
    counter.add(next.begin, next.end);
    if (is_run) {
      runs[from] = runs[from].subspan(1);
    } else {
      partial[from] = partial[from].subspan(1);
    }
  }
}

}  // namespace

BitmapCensus census_of(const OuterBitmap& bitmap, std::int64_t rows, std::int64_t cols) {
  BitmapCensus census;
  for (std::int64_t row_pair = 0; row_pair < 4; ++row_pair) {
    for (std::int64_t col_pair = 0; col_pair < 4; ++col_pair) {
      bool any_16 = false, all_16 = true;
      for (std::int64_t part = 0; part < 4; ++part) {
        const std::int64_t inner_row = row_pair * 2 + part % 2;
        const std::int64_t inner_col = col_pair * 2 + part / 2;
        const std::uint64_t inside = inner_tile_bits(rows - inner_row * 8, cols - inner_col * 8);
        if (inside == 0) continue;  // past the end: no tile of any size begins here
        const std::uint64_t bits =
            bitmap[static_cast<std::size_t>(inner_col * 8 + inner_row)] & inside;
        count_tile(bits != 0, bits == inside, census.by_8);
        any_16 |= bits != 0;
        all_16 &= bits == inside;
        census.visible += std::popcount(bits);
        census.rows_seen |= rows_seen_in(bits) << (inner_row * 8);
      }
      const bool exists = rows > row_pair * 16 && cols > col_pair * 16;
      if (exists) count_tile(any_16, all_16, census.by_16);
    }
  }
  return census;
}

TileCounts census_of_row_pair(const BlockPattern& pattern, std::int64_t row,
                              std::int64_t num_tile_rows, std::int64_t num_tile_cols) {
  const std::int64_t row_end = std::min(row + 2, num_tile_rows);
  const auto upper = full_runs_of_row(pattern, row);
  const auto lower = full_runs_of_row(pattern, row_end - 1);  // the same row where it is the last
  TileCounts counts;
  counts.full = count_full_128(upper, lower, num_tile_cols);
  counts.partial = count_non_empty_128(pattern, row, row_end) - counts.full;
  return counts;
}

}  // namespace stof::mask
