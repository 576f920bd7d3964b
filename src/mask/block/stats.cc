#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/bits.h"
#include "core/cancel.h"
#include "core/check.h"
#include "mask/block/bitmap.h"
#include "mask/block/census.h"
#include "mask/block/pattern.h"

namespace stof::mask {
namespace {

[[noreturn]] void throw_too_many(const ScoreShape& shape) {
  throw_error(ErrorCode::kUnsupported,
              "statistics of {}: expected counts below 2^63, got more; use fewer heads or batches",
              shape.to_string());
}

/// Sums that notice when they pass 2^63.
class Counter {
 public:
  explicit Counter(const ScoreShape& shape) : shape_(shape) {}

  void add(std::int64_t& total, std::int64_t count, std::int64_t weight) const {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(count, weight, &product) ||
        __builtin_add_overflow(total, product, &total))
      throw_too_many(shape_);
  }

 private:
  const ScoreShape& shape_;
};

/// What one pattern holds.
struct PatternTotals {
  std::int64_t visible = 0;
  std::int64_t empty_rows = 0;
  std::int64_t longest_row = 0;  ///< non-empty outer tiles
  TileCounts by_8, by_16, by_64, by_128;
};

class PatternCensus {
 public:
  explicit PatternCensus(const BlockMask& mask) : mask_(mask) {
    whole_.reserve(mask.bitmaps().size());
    for (const OuterBitmap& bitmap : mask.bitmaps())
      whole_.push_back(census_of(bitmap, kOuterTile, kOuterTile));
  }

  PatternTotals count(const BlockPattern& pattern) const {
    PatternTotals totals;
    const std::int64_t tile_rows = mask_.num_tile_rows();
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      check_cancelled();
      count_row(pattern, row, totals);
      if (row % 2 == 0)
        totals.by_128 += census_of_row_pair(pattern, row, tile_rows, mask_.num_tile_cols());
    }
    return totals;
  }

 private:
  void count_row(const BlockPattern& pattern, std::int64_t row, PatternTotals& totals) const {
    const std::int64_t num_rows = tile_extent(row, mask_.shape().seq_q);
    const std::int64_t seq_kv = mask_.shape().seq_kv;
    std::uint64_t rows_seen = 0;
    std::int64_t tiles = 0;
    for (const FullRun& run : full_runs_of_row(pattern, row)) {
      const std::int64_t width = std::min(run.end * kOuterTile, seq_kv) - run.begin * kOuterTile;
      totals.visible += num_rows * width;
      totals.by_8.full += ceil_div(num_rows, 8) * ceil_div(width, 8);
      totals.by_16.full += ceil_div(num_rows, 16) * ceil_div(width, 16);
      totals.by_64.full += run.end - run.begin;
      tiles += run.end - run.begin;
      rows_seen = low_bits(num_rows);
    }
    const auto partial = partial_of_row(pattern, row);
    for (const PartialTile& tile : partial) {
      const auto index = static_cast<std::size_t>(tile.bitmap);
      const std::int64_t num_cols = tile_extent(tile.col, seq_kv);
      const bool whole = num_rows == kOuterTile && num_cols == kOuterTile;
      const BitmapCensus census =
          whole ? whole_[index] : census_of(mask_.bitmaps()[index], num_rows, num_cols);
      totals.visible += census.visible;
      totals.by_8 += census.by_8;
      totals.by_16 += census.by_16;
      rows_seen |= census.rows_seen;
    }
    tiles += std::ssize(partial);
    totals.by_64.partial += std::ssize(partial);
    totals.empty_rows += num_rows - std::popcount(rows_seen);
    totals.longest_row = std::max(totals.longest_row, tiles);
  }

  const BlockMask& mask_;
  std::vector<BitmapCensus> whole_;  ///< of every bitmap as a tile inside the sequence
};

/// (batch, head) pairs that use each pattern.
std::vector<std::int64_t> uses_of_patterns(const BlockMask& mask) {
  const ScoreShape& shape = mask.shape();
  const std::int64_t broadcast =
      (shape.batch / mask.batch_extent()) * (shape.num_heads / mask.head_extent());
  std::vector<std::int64_t> uses(static_cast<std::size_t>(mask.num_patterns()), 0);
  for (std::int64_t b = 0; b < mask.batch_extent(); ++b)
    for (std::int64_t h = 0; h < mask.head_extent(); ++h)
      uses[static_cast<std::size_t>(mask.pattern_index(b, h))] += broadcast;
  return uses;
}

}  // namespace

double TileCensus::density() const {
  const double all =
      static_cast<double>(full) + static_cast<double>(partial) + static_cast<double>(empty);
  return all == 0 ? 0 : (static_cast<double>(full) + static_cast<double>(partial)) / all;
}

BlockMaskStats compute_stats(const BlockMask& mask) {
  const ScoreShape& shape = mask.shape();
  const Counter counter(shape);
  BlockMaskStats stats;
  for (std::int64_t tile : {8, 16, 64, 128}) {
    TileCensus census;
    census.tile = tile;
    counter.add(census.empty, ceil_div(shape.seq_q, tile) * ceil_div(shape.seq_kv, tile),
                shape.batch * shape.num_heads);
    stats.tiles.push_back(census);
  }

  const PatternCensus census(mask);
  const std::vector<std::int64_t> uses = uses_of_patterns(mask);
  std::int64_t longest_row = 0;
  for (std::int64_t i = 0; i < mask.num_patterns(); ++i) {
    const std::int64_t weight = uses[static_cast<std::size_t>(i)];
    const PatternTotals totals = census.count(mask.pattern(i));
    counter.add(stats.visible_pairs, totals.visible, weight);
    counter.add(stats.empty_rows, totals.empty_rows, weight);
    longest_row = std::max(longest_row, totals.longest_row);
    const TileCounts* counts[] = {&totals.by_8, &totals.by_16, &totals.by_64, &totals.by_128};
    for (std::size_t size = 0; size < stats.tiles.size(); ++size) {
      counter.add(stats.tiles[size].full, counts[size]->full, weight);
      counter.add(stats.tiles[size].partial, counts[size]->partial, weight);
    }
  }
  for (TileCensus& tiles : stats.tiles) tiles.empty -= tiles.full + tiles.partial;

  const double pairs_of_heads =
      static_cast<double>(shape.batch) * static_cast<double>(shape.num_heads);
  const double all_pairs =
      pairs_of_heads * static_cast<double>(shape.seq_q) * static_cast<double>(shape.seq_kv);
  // Past 2^53 pairs both sides are rounded.
  stats.element_density = std::min(1.0, static_cast<double>(stats.visible_pairs) / all_pairs);
  const TileCensus& outer = stats.tiles[2];
  const double mean_row = static_cast<double>(outer.full + outer.partial) / pairs_of_heads /
                          static_cast<double>(mask.num_tile_rows());
  stats.row_imbalance = mean_row == 0 ? 0 : static_cast<double>(longest_row) / mean_row;
  stats.distinct_bitmaps = std::ssize(mask.bitmaps());
  stats.memory_bytes = mask.memory_bytes();
  return stats;
}

std::string BlockMaskStats::to_json() const {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
  for (const TileCensus& census : tiles)
    sizes.push_back({{"tile", census.tile},
                     {"full", census.full},
                     {"partial", census.partial},
                     {"empty", census.empty},
                     {"density", census.density()}});
  const nlohmann::ordered_json json = {
      {"visible_pairs", visible_pairs},
      {"element_density", element_density},
      {"tiles", sizes},
      {"distinct_bitmaps", distinct_bitmaps},
      {"empty_rows", empty_rows},
      {"row_imbalance", row_imbalance},
      {"memory_bytes", memory_bytes},
  };
  return json.dump();
}

}  // namespace stof::mask
