#include "mask_cost.h"

#include <algorithm>
#include <cstdint>

#include "core/bits.h"
#include "core/check.h"
#include "mask/draw/exact_class.h"
#include "output.h"
#include "stof/system_info.h"

namespace stof::cli {
namespace {

constexpr std::int64_t kSamples = 4096;
/// A tile row's two offsets, a run and two partial tiles: what a band along the diagonal stores.
constexpr double kBytesPerTileRow = 48;
/// An entry and, at worst, a bitmap of its own.
constexpr double kBytesPerPartialTile = sizeof(mask::PartialTile) + sizeof(mask::OuterBitmap);

/// Evenly spread pseudo-random numbers (SplitMix64, Steele et al. 2014); always the same ones.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

double estimate_block_bytes(const MaskSource& source) {
  const mask::ScoreShape& shape = source.shape;
  const std::int64_t batch = std::min(source.expression->batch_extent(), shape.batch);
  const std::int64_t heads = std::min(source.expression->head_extent(), shape.num_heads);
  const std::int64_t rows = ceil_div(shape.seq_q, mask::kOuterTile);
  const std::int64_t cols = ceil_div(shape.seq_kv, mask::kOuterTile);
  std::uint64_t state = 1;
  const auto below = [&state](std::int64_t limit) {
    return static_cast<std::int64_t>(next_random(state) % static_cast<std::uint64_t>(limit));
  };
  std::int64_t num_partial = 0;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const std::int64_t q = below(rows) * mask::kOuterTile;
    const std::int64_t k = below(cols) * mask::kOuterTile;
    const mask::TileRect tile{q, std::min(q + mask::kOuterTile, shape.seq_q), k,
                              std::min(k + mask::kOuterTile, shape.seq_kv)};
    if (mask::exact_class(source, below(batch), below(heads), tile) == mask::TileClass::kPartial)
      ++num_partial;
  }
  const double share = static_cast<double>(num_partial) / kSamples;
  const double per_pattern =
      static_cast<double>(rows) *
      (kBytesPerTileRow + share * static_cast<double>(cols) * kBytesPerPartialTile);
  return per_pattern * static_cast<double>(batch) * static_cast<double>(heads);
}

void require_block_form_fits(const MaskSource& source) {
  const double limit = static_cast<double>(system_info().cpu.memory_bytes) / 2;
  const double bytes = estimate_block_bytes(source);
  STOF_CHECK(bytes <= limit, kInvalidArgument,
             "--seq: the block form of {} for {} would take about {}, more than half of this "
             "machine's memory ({}); use a shorter sequence",
             source.title, source.shape.to_string(), format_bytes(bytes), format_bytes(limit));
}

}  // namespace stof::cli
