#include "plan/retile.h"

#include <algorithm>
#include <bit>

#include "core/bits.h"
#include "core/check.h"
#include "core/hash.h"
#include "plan/bit_rows.h"

namespace stof::plan {
namespace {

using mask::kOuterTile;

/// The storage format keeps inner tiles column by column; a plan wants whole rows.
std::array<std::uint64_t, 64> rows_of(const mask::OuterBitmap& bitmap) {
  std::array<std::uint64_t, 64> rows{};
  for (std::size_t col = 0; col < 8; ++col)
    for (std::size_t row = 0; row < 64; ++row) {
      const std::uint64_t byte = (bitmap[col * 8 + row / 8] >> (8 * (row % 8))) & 0xff;
      rows[row] |= byte << (8 * col);
    }
  return rows;
}

}  // namespace

Retiler::Retiler(const mask::BlockMask& mask, const PlanConfig& config)
    : mask_(mask),
      tile_q_(config.tile_q),
      tile_kv_(config.tile_kv),
      words_per_row_(ceil_div(config.tile_kv, 64)),
      seq_q_(mask.shape().seq_q),
      seq_kv_(mask.shape().seq_kv),
      num_tiles_(ceil_div(mask.shape().seq_kv, config.tile_kv)),
      bits_(static_cast<std::size_t>(tile_q_ * words_per_row_)) {
  bitmap_rows_.reserve(mask.bitmaps().size());
  for (const auto& bitmap : mask.bitmaps()) bitmap_rows_.push_back(rows_of(bitmap));
}

void Retiler::read(std::int64_t pattern, std::int64_t q_tile, TileRow& out) {
  out.partial.clear();
  open_strips(pattern, q_tile);
  find_sure_runs();
  find_candidates();
  out.runs = sure_;

  // Candidates minus sure tiles: what is left has to be drawn to be known.
  std::size_t sure = 0;
  for (const TileRun& range : candidates_)
    for (std::int32_t tile = range.begin; tile < range.end;) {
      while (sure < sure_.size() && sure_[sure].end <= tile) ++sure;
      if (sure < sure_.size() && sure_[sure].begin <= tile) {
        tile = sure_[sure].end;
        continue;
      }
      read_candidate(tile, out);
      ++tile;
    }

  std::sort(out.runs.begin(), out.runs.end(),
            [](const TileRun& a, const TileRun& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const TileRun& run : out.runs) {
    if (kept > 0 && out.runs[kept - 1].end == run.begin)
      out.runs[kept - 1].end = run.end;
    else
      out.runs[kept++] = run;
  }
  out.runs.resize(kept);
}

void Retiler::open_strips(std::int64_t pattern, std::int64_t q_tile) {
  q_begin_ = q_tile * tile_q_;
  q_end_ = std::min(q_begin_ + tile_q_, seq_q_);
  const mask::BlockPattern& lists = mask_.pattern(pattern);
  strips_.clear();
  for (std::int64_t row = q_begin_ / kOuterTile; row * kOuterTile < q_end_; ++row) {
    const auto r = static_cast<std::size_t>(row);
    strips_.push_back({std::max(q_begin_, row * kOuterTile),
                       std::min(q_end_, (row + 1) * kOuterTile),
                       lists.full_runs.data() + lists.full_run_ptr[r],
                       lists.full_runs.data() + lists.full_run_ptr[r + 1],
                       lists.partial.data() + lists.partial_ptr[r],
                       lists.partial.data() + lists.partial_ptr[r + 1]});
  }
}

void Retiler::find_sure_runs() {
  common_.assign(strips_.front().run, strips_.front().run_end);
  for (std::size_t i = 1; i < strips_.size() && !common_.empty(); ++i) {
    next_common_.clear();
    const mask::FullRun* other = strips_[i].run;
    for (std::size_t mine = 0; mine < common_.size() && other != strips_[i].run_end;) {
      const std::int32_t begin = std::max(common_[mine].begin, other->begin);
      const std::int32_t end = std::min(common_[mine].end, other->end);
      if (begin < end) next_common_.push_back({begin, end});
      if (common_[mine].end < other->end)
        ++mine;
      else
        ++other;
    }
    common_.swap(next_common_);
  }
  sure_.clear();
  for (const mask::FullRun& run : common_) {
    const std::int64_t k_end = std::min(run.end * kOuterTile, seq_kv_);
    const std::int64_t begin = ceil_div(run.begin * kOuterTile, tile_kv_);
    // The ragged last tile counts as covered when the run reaches the end of the sequence.
    const std::int64_t end = k_end == seq_kv_ ? num_tiles_ : k_end / tile_kv_;
    if (begin < end)
      sure_.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)});
  }
}

void Retiler::find_candidates() {
  candidates_.clear();
  const auto add = [this](std::int64_t first_col, std::int64_t last_col) {
    const std::int64_t k_end = std::min(last_col * kOuterTile, seq_kv_);
    candidates_.push_back({static_cast<std::int32_t>(first_col * kOuterTile / tile_kv_),
                           static_cast<std::int32_t>(ceil_div(k_end, tile_kv_))});
  };
  for (const Strip& strip : strips_) {
    for (const auto* run = strip.run; run != strip.run_end; ++run) add(run->begin, run->end);
    for (const auto* tile = strip.partial; tile != strip.partial_end; ++tile)
      add(tile->col, std::int64_t{tile->col} + 1);
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const TileRun& a, const TileRun& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const TileRun& range : candidates_) {
    if (kept > 0 && range.begin <= candidates_[kept - 1].end)
      candidates_[kept - 1].end = std::max(candidates_[kept - 1].end, range.end);
    else
      candidates_[kept++] = range;
  }
  candidates_.resize(kept);
}

void Retiler::read_candidate(std::int64_t tile, TileRow& out) {
  const std::int64_t k_begin = tile * tile_kv_;
  const std::int64_t k_end = std::min(k_begin + tile_kv_, seq_kv_);
  std::fill(bits_.begin(), bits_.end(), 0);
  for (Strip& strip : strips_) draw_strip(strip, k_begin, k_end);
  std::int64_t visible = 0;
  for (const std::uint64_t word : bits_) visible += std::popcount(word);
  const auto index = static_cast<std::int32_t>(tile);
  if (visible == (q_end_ - q_begin_) * (k_end - k_begin))
    out.runs.push_back({index, index + 1});
  else if (visible > 0)
    out.partial.push_back({index, intern()});
}

void Retiler::draw_strip(Strip& strip, std::int64_t k_begin, std::int64_t k_end) {
  // Candidates come in ascending order, so what ends before this tile is never needed again.
  while (strip.run != strip.run_end && strip.run->end * kOuterTile <= k_begin) ++strip.run;
  while (strip.partial != strip.partial_end &&
         (std::int64_t{strip.partial->col} + 1) * kOuterTile <= k_begin)
    ++strip.partial;

  std::uint64_t* first_row = bits_.data() + (strip.q_begin - q_begin_) * words_per_row_;
  const std::int64_t num_rows = strip.q_end - strip.q_begin;
  for (const auto* run = strip.run; run != strip.run_end && run->begin * kOuterTile < k_end;
       ++run) {
    const std::int64_t begin = std::max(run->begin * kOuterTile, k_begin) - k_begin;
    const std::int64_t end = std::min(run->end * kOuterTile, k_end) - k_begin;
    for (std::int64_t row = 0; row < num_rows; ++row)
      set_bit_range(first_row + row * words_per_row_, begin, end);
  }
  for (const auto* tile = strip.partial;
       tile != strip.partial_end && tile->col * kOuterTile < k_end; ++tile) {
    const auto& rows = bitmap_rows_[static_cast<std::size_t>(tile->bitmap)];
    for (std::int64_t row = 0; row < num_rows; ++row)
      or_word(first_row + row * words_per_row_, k_end - k_begin, tile->col * kOuterTile - k_begin,
              rows[static_cast<std::size_t>((strip.q_begin + row) % kOuterTile)]);
  }
}

std::int32_t Retiler::intern() {
  const Fingerprint hash = fingerprint_of(bits_.data(), bits_.size() * sizeof(std::uint64_t));
  std::vector<std::int32_t>& same_hash = payloads_by_hash_[hash.low];
  for (const std::int32_t index : same_hash)
    if (std::equal(bits_.begin(), bits_.end(),
                   payloads_.begin() + index * static_cast<std::int64_t>(bits_.size())))
      return index;
  STOF_CHECK(num_payloads_ < INT32_MAX, kUnsupported,
             "mask plan: more than 2^31 - 1 distinct partial tiles; use larger tiles");
  payloads_.insert(payloads_.end(), bits_.begin(), bits_.end());
  same_hash.push_back(num_payloads_);
  return num_payloads_++;
}

}  // namespace stof::plan
