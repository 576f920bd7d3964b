#include "backend/cuda/attention/rowwise_lists.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "core/bits.h"

namespace stof::cuda {
namespace {

constexpr std::int64_t kRows = 16, kKeys = 16;

/// Column masks of up to 16 keys: bit r of a column = row r sees it.
using Columns = std::array<std::uint32_t, kKeys>;

/// Collects the chunks of one pattern's 16 rows, keys ascending except where gathered ones wait for
/// company.
class ChunkWriter {
 public:
  explicit ChunkWriter(RowwiseLists* out) : out_(out) {}

  /// Keys of a tile that all rows see.
  void add_full(std::int64_t begin, std::int64_t end) {
    for (std::int64_t key = begin; key < end; key += kKeys) {
      Columns columns{};
      for (std::int64_t c = 0; c < std::min(kKeys, end - key); ++c)
        columns[static_cast<std::size_t>(c)] = 0xffff;
      add_consecutive(key, columns);
    }
  }

  /// Sixteen consecutive keys: as they lie where most are seen, gathered one by one elsewhere.
  void add_some(std::int64_t first, const Columns& columns) {
    // A gathered chunk costs a list of keys beside its sixteen rows.
    constexpr int kWorthReadingWhole = 12;
    const auto seen =
        std::count_if(columns.begin(), columns.end(), [](std::uint32_t rows) { return rows != 0; });
    if (seen >= kWorthReadingWhole) return add_consecutive(first, columns);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (columns[c] == 0) continue;
      keys_[waiting_] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(c));
      rows_[waiting_++] = columns[c];
      if (waiting_ == keys_.size()) flush();
    }
  }

  /// Writes out the gathered keys that are left.
  void flush() {
    if (waiting_ == 0) return;
    for (; waiting_ < keys_.size(); ++waiting_) keys_[waiting_] = -1, rows_[waiting_] = 0;
    const auto index = static_cast<std::int32_t>(out_->columns.size() / kKeys);
    out_->columns.insert(out_->columns.end(), keys_.begin(), keys_.end());
    out_->chunks.push_back({0, index, bits_of(rows_), 0});
    waiting_ = 0;
  }

 private:
  void add_consecutive(std::int64_t first, const Columns& columns) {
    out_->chunks.push_back({static_cast<std::int32_t>(first), -1, bits_of(columns), 0});
  }

  /// Index of the distinct visibility; -1 where everything is seen.
  std::int32_t bits_of(const Columns& columns) {
    std::array<std::uint32_t, 8> words{};
    bool all = true;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      all &= columns[c] == 0xffff;
      for (std::size_t r = 0; r < kRows; ++r)
        words[r / 2] |= (columns[c] >> r & 1u) << (16 * (r % 2) + c);
    }
    if (all) return -1;
    const auto [at, is_new] = known_.try_emplace(words, static_cast<std::int32_t>(known_.size()));
    if (is_new) out_->bits.insert(out_->bits.end(), words.begin(), words.end());
    return at->second;
  }

  RowwiseLists* out_;
  std::array<std::int32_t, kKeys> keys_{};
  Columns rows_{};
  std::size_t waiting_ = 0;
  std::map<std::array<std::uint32_t, 8>, std::int32_t> known_;
};

/// Columns of 16 rows and 16 keys of a bitmap: `row` and `key` are multiples of 16 within 64.
Columns columns_of(const mask::OuterBitmap& bitmap, std::int64_t row, std::int64_t key) {
  Columns columns{};
  for (std::int64_t half = 0; half < 2; ++half)
    for (std::int64_t slab = 0; slab < 2; ++slab) {
      std::uint64_t word = bitmap[static_cast<std::size_t>((key / 8 + half) * 8 + row / 8 + slab)];
      for (; word != 0; word &= word - 1) {
        const int bit = std::countr_zero(word);
        columns[static_cast<std::size_t>(8 * half + bit % 8)] |= 1u << (8 * slab + bit / 8);
      }
    }
  return columns;
}

/// All chunks of 16 rows of a pattern.
void write_rows(const mask::BlockMask& mask, const mask::BlockPattern& pattern, std::int64_t q_row,
                ChunkWriter* writer) {
  const auto tile_row = static_cast<std::size_t>(q_row / mask::kOuterTile);
  for (auto i = pattern.full_run_ptr[tile_row]; i < pattern.full_run_ptr[tile_row + 1]; ++i) {
    const mask::FullRun& run = pattern.full_runs[static_cast<std::size_t>(i)];
    writer->add_full(run.begin * mask::kOuterTile,
                     std::min(run.end * mask::kOuterTile, mask.shape().seq_kv));
  }
  for (auto i = pattern.partial_ptr[tile_row]; i < pattern.partial_ptr[tile_row + 1]; ++i) {
    const mask::PartialTile& tile = pattern.partial[static_cast<std::size_t>(i)];
    const mask::OuterBitmap& bitmap = mask.bitmaps()[static_cast<std::size_t>(tile.bitmap)];
    for (std::int64_t key = 0; key < mask::kOuterTile; key += kKeys)
      writer->add_some(tile.col * mask::kOuterTile + key,
                       columns_of(bitmap, q_row % mask::kOuterTile, key));
  }
  writer->flush();
}

}  // namespace

std::size_t RowwiseLists::bytes() const {
  return items.size() * sizeof(RowItem) + chunks.size() * sizeof(KeyChunk) +
         4 * (columns.size() + bits.size());
}

std::optional<RowwiseLists> build_rowwise_lists(const AttentionProblem& problem,
                                                const mask::BlockMask& mask,
                                                std::int64_t max_chunks) {
  RowwiseLists lists;
  const std::int64_t num_tiles = (problem.seq_q + kRows - 1) / kRows;
  struct Range {
    std::int32_t begin, count;
  };
  std::vector<Range> ranges;  // [pattern][tile of 16 rows]
  ChunkWriter writer(&lists);
  for (std::int64_t p = 0; p < mask.num_patterns(); ++p)
    for (std::int64_t t = 0; t < num_tiles; ++t) {
      const std::size_t begin = lists.chunks.size();
      write_rows(mask, mask.pattern(p), t * kRows, &writer);
      if (static_cast<std::int64_t>(lists.chunks.size()) > max_chunks) return std::nullopt;
      ranges.push_back({static_cast<std::int32_t>(begin),
                        static_cast<std::int32_t>(lists.chunks.size() - begin)});
    }
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_q; ++h)
      for (std::int64_t t = 0; t < num_tiles; ++t) {
        const Range& range =
            ranges[static_cast<std::size_t>(mask.pattern_index(b, h) * num_tiles + t)];
        lists.items.push_back({static_cast<std::int32_t>(t * kRows), static_cast<std::int32_t>(h),
                               static_cast<std::int32_t>(b), range.begin, range.count, 0});
        lists.total_chunks += range.count;
        lists.longest = std::max(lists.longest, range.count);
      }
  return lists;
}

}  // namespace stof::cuda
