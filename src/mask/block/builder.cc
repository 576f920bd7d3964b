#include "mask/block/builder.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/bits.h"
#include "core/cancel.h"
#include "core/check.h"
#include "mask/block/bitmap.h"
#include "mask/block/pattern.h"
#include "mask/block/row_bits.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

void check_extent(const char* name, std::int64_t value) {
  STOF_CHECK(value >= 1 && value <= std::numeric_limits<std::int32_t>::max(), kInvalidArgument,
             "block mask: {}: expected 1 to 2147483647, got {}", name, value);
}

/// The multiple of the largest power of two strictly inside [begin, end): halves stay aligned, so
/// that masks made of aligned blocks are decided high up.
std::int64_t split_point(std::int64_t begin, std::int64_t end) {
  const auto last = static_cast<std::uint64_t>(end - 1);
  const int top = std::bit_width(static_cast<std::uint64_t>(begin) ^ last) - 1;
  return static_cast<std::int64_t>(last >> top << top);
}

}  // namespace

BlockMaskBuilder::BlockMaskBuilder(const Mask& bound_mask, const ScoreShape& shape)
    : mask_(bound_mask),
      shape_(shape),
      num_tile_rows_(ceil_div(shape.seq_q, kOuterTile)),
      num_tile_cols_(ceil_div(shape.seq_kv, kOuterTile)) {}

BlockMask BlockMaskBuilder::build() {
  const std::int64_t batch_extent = mask_.batch_extent();
  const std::int64_t head_extent = mask_.head_extent();
  std::vector<std::int32_t> pattern_of;
  std::vector<BlockPattern> patterns;
  std::unordered_multimap<std::uint64_t, std::int32_t> known;  // content hash -> pattern

  for (std::int64_t b = 0; b < batch_extent; ++b) {
    for (std::int64_t h = 0; h < head_extent; ++h) {
      BlockPattern pattern = build_pattern(b, h);
      const std::uint64_t key = pattern_fingerprint(pattern).low;
      const auto [first, last] = known.equal_range(key);
      const auto same = std::find_if(first, last, [&](const auto& entry) {
        return patterns[static_cast<std::size_t>(entry.second)] == pattern;
      });
      if (same != last) {
        pattern_of.push_back(same->second);
        continue;
      }
      const auto index = static_cast<std::int32_t>(patterns.size());
      known.emplace(key, index);
      pattern_of.push_back(index);
      patterns.push_back(std::move(pattern));
    }
  }
  return assemble(shape_, batch_extent, head_extent, std::move(pattern_of), std::move(patterns),
                  bitmaps_.release());
}

BlockPattern BlockMaskBuilder::build_pattern(std::int64_t b, std::int64_t h) {
  b_ = b;
  h_ = h;
  pattern_ = {};
  pattern_.full_run_ptr.reserve(static_cast<std::size_t>(num_tile_rows_) + 1);
  pattern_.partial_ptr.reserve(static_cast<std::size_t>(num_tile_rows_) + 1);
  pattern_.full_run_ptr.push_back(0);
  pattern_.partial_ptr.push_back(0);
  const std::int64_t period = mask_.node().diagonal_period();
  const std::int64_t shift =
      period == 0 ? num_tile_rows_ : std::lcm(period, kOuterTile) / kOuterTile;
  for (std::int64_t row = 0; row < num_tile_rows_; ++row) {
    check_cancelled();
    q_begin_ = row * kOuterTile;
    q_end_ = std::min(q_begin_ + kOuterTile, shape_.seq_q);
    if (row >= shift && q_end_ - q_begin_ == kOuterTile)
      repeat(static_cast<std::size_t>(row - shift), shift);
    else
      subdivide(0, num_tile_cols_);
    pattern_.full_run_ptr.push_back(static_cast<std::int64_t>(pattern_.full_runs.size()));
    pattern_.partial_ptr.push_back(static_cast<std::int64_t>(pattern_.partial.size()));
  }
  pattern_.full_runs.shrink_to_fit();
  pattern_.partial.shrink_to_fit();
  return std::move(pattern_);
}

// The strip `shift` rows up, moved along the diagonal; what comes in on the left and a ragged last
// column are asked for.
void BlockMaskBuilder::repeat(std::size_t source, std::int64_t shift) {
  const std::int64_t whole_cols = shape_.seq_kv / kOuterTile;
  subdivide(0, std::min(shift, num_tile_cols_));
  for (auto i = pattern_.full_run_ptr[source]; i < pattern_.full_run_ptr[source + 1]; ++i) {
    const FullRun run = pattern_.full_runs[static_cast<std::size_t>(i)];
    const std::int64_t end = std::min(run.end + shift, whole_cols);
    if (run.begin + shift < end) add_full(run.begin + shift, end);
  }
  for (auto i = pattern_.partial_ptr[source]; i < pattern_.partial_ptr[source + 1]; ++i) {
    const PartialTile tile = pattern_.partial[static_cast<std::size_t>(i)];
    if (tile.col + shift < whole_cols)
      pattern_.partial.push_back({static_cast<std::int32_t>(tile.col + shift), tile.bitmap});
  }
  if (whole_cols < num_tile_cols_ && shift <= whole_cols) subdivide(whole_cols, num_tile_cols_);
}

// One strip of 64 queries at a time: tiles come out in the order they are stored, so nothing has to
// be sorted or kept aside, and a strip costs (changes along it) * log2(columns) classifications.
void BlockMaskBuilder::subdivide(std::int64_t col_begin, std::int64_t col_end) {
  const TileRect rect{q_begin_, q_end_, col_begin * kOuterTile,
                      std::min(col_end * kOuterTile, shape_.seq_kv)};
  switch (mask_.classify(b_, h_, rect)) {
    case TileClass::kEmpty:
      return;
    case TileClass::kFull:
      return add_full(col_begin, col_end);
    case TileClass::kPartial:
      break;
  }
  if (col_end - col_begin == 1) return add_leaf(col_begin);
  const std::int64_t middle = split_point(col_begin, col_end);
  subdivide(col_begin, middle);
  subdivide(middle, col_end);
}

void BlockMaskBuilder::add_full(std::int64_t col_begin, std::int64_t col_end) {
  const auto begin = static_cast<std::int32_t>(col_begin);
  const auto end = static_cast<std::int32_t>(col_end);
  const bool row_has_runs =
      static_cast<std::int64_t>(pattern_.full_runs.size()) > pattern_.full_run_ptr.back();
  if (row_has_runs && pattern_.full_runs.back().end == begin) {
    pattern_.full_runs.back().end = end;
  } else {
    pattern_.full_runs.push_back({begin, end});
  }
}

void BlockMaskBuilder::add_leaf(std::int64_t col) {
  const std::int64_t k_begin = col * kOuterTile;
  const std::int64_t num_keys = std::min(kOuterTile, shape_.seq_kv - k_begin);
  TileRows rows{};
  std::uint64_t any = 0, every = kAllOnes;
  for (std::int64_t q = q_begin_; q < q_end_; ++q) {
    const std::uint64_t keys = row_bits_within(mask_, b_, h_, q, k_begin, num_keys, shape_.seq_kv);
    rows[static_cast<std::size_t>(q - q_begin_)] = keys;
    any |= keys;
    every &= keys;
  }
  // classify() may say "partial" of a compound mask's tile that turns out to be all or nothing.
  if (any == 0) return;
  if (every == low_bits(num_keys)) return add_full(col, col + 1);
  pattern_.partial.push_back({static_cast<std::int32_t>(col), bitmaps_.intern(pack_bitmap(rows))});
}

BlockMask BlockMaskBuilder::assemble(const ScoreShape& shape, std::int64_t batch_extent,
                                     std::int64_t head_extent, std::vector<std::int32_t> pattern_of,
                                     std::vector<BlockPattern> patterns,
                                     std::vector<OuterBitmap> bitmaps) {
  BlockMask mask;
  mask.shape_ = shape;
  mask.batch_extent_ = batch_extent;
  mask.head_extent_ = head_extent;
  mask.pattern_of_ = std::move(pattern_of);
  mask.patterns_ = std::move(patterns);
  mask.bitmaps_ = std::move(bitmaps);
  mask.bitmaps_.shrink_to_fit();
  return mask;
}

BlockMask build_block_mask(const Mask& mask, const ScoreShape& shape, Alignment alignment) {
  check_extent("batch", shape.batch);
  check_extent("num_heads", shape.num_heads);
  check_extent("seq_q", shape.seq_q);
  check_extent("seq_kv", shape.seq_kv);
  return BlockMaskBuilder(mask.bind(shape, alignment), shape).build();
}

}  // namespace stof::mask
