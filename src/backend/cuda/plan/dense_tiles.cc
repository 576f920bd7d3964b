#include "backend/cuda/plan/dense_tiles.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "backend/cuda/attention/device_plan.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

constexpr std::int64_t kStripRows = 64, kGroupKeys = 16;

enum class TileClass { kEmpty, kFull, kPartial };

/// The tiles of a pattern's query tiles, in turn.
class TileRows {
 public:
  TileRows(const AttentionProblem& problem, const GroupBits& bits, std::int64_t tile_q,
           std::int64_t tile_kv)
      : bits_(bits),
        strips_per_tile_(tile_q / kStripRows),
        groups_per_tile_(tile_kv / kGroupKeys),
        num_tiles_(ceil_div(problem.seq_kv, tile_kv)),
        num_query_tiles_(ceil_div(problem.seq_q, tile_q)),
        shown_(static_cast<std::size_t>(bits.words) + 1),
        hidden_(shown_.size()) {}

  std::int64_t num_query_tiles() const { return num_query_tiles_; }
  std::int64_t num_tiles() const { return num_tiles_; }

  /// Goes to a query tile of a pattern.
  void select(std::int64_t pattern, std::int64_t query_tile) {
    std::fill(shown_.begin(), shown_.end(), 0);
    std::fill(hidden_.begin(), hidden_.end(), 0);
    const std::int64_t first = query_tile * strips_per_tile_;
    const std::int64_t last = std::min(first + strips_per_tile_, bits_.strips);
    for (std::int64_t strip = first; strip < last; ++strip) {
      const auto at = static_cast<std::size_t>((pattern * bits_.strips + strip) * bits_.words);
      for (std::size_t word = 0; word < static_cast<std::size_t>(bits_.words); ++word) {
        shown_[word] |= bits_.shown[at + word];
        hidden_[word] |= bits_.hidden[at + word];
      }
    }
  }

  /// Of the query tile. Where tiles divide words, by bits: this runs for every tile size there is.
  TileCounts counts() const {
    TileCounts counts;
    if (32 % groups_per_tile_ != 0) {
      for (std::int64_t tile = 0; tile < num_tiles_; ++tile) {
        const TileClass kind = at(tile);
        counts.full += kind == TileClass::kFull;
        counts.partial += kind == TileClass::kPartial;
      }
      return counts;
    }
    for (std::size_t word = 0; word < shown_.size(); ++word) {
      const std::uint32_t shown = by_tile(shown_[word]), hidden = by_tile(hidden_[word]);
      counts.full += count(shown & ~hidden);
      counts.partial += count(shown & hidden);
    }
    return counts;
  }

  TileClass at(std::int64_t tile) const {
    if (!any(shown_, tile)) return TileClass::kEmpty;
    return any(hidden_, tile) ? TileClass::kPartial : TileClass::kFull;
  }

 private:
  bool any(const std::vector<std::uint32_t>& words, std::int64_t tile) const {
    const std::int64_t first = tile * groups_per_tile_;
    const auto word = static_cast<std::size_t>(first / 32);
    const std::uint64_t both = static_cast<std::uint64_t>(words[word + 1]) << 32 | words[word];
    return (both >> (first % 32) & ((std::uint64_t{1} << groups_per_tile_) - 1)) != 0;
  }

  /// Bit 0 of every tile's groups: whether any of them is set.
  std::uint32_t by_tile(std::uint32_t word) const {
    std::uint32_t firsts = 1;
    for (std::int64_t step = 1; step < groups_per_tile_; step *= 2) word |= word >> step;
    for (std::int64_t step = groups_per_tile_; step < 32; step *= 2) firsts |= firsts << step;
    return word & firsts;
  }

  /// Bits of what by_tile() gives. From four groups a tile on there is at most one in a nibble: the
  /// product adds nibbles in its top one, which is faster than a call for machines of all kinds.
  std::int64_t count(std::uint32_t tiles) const {
    return groups_per_tile_ >= 4 ? tiles * 0x11111111u >> 28 : std::popcount(tiles);
  }

  const GroupBits& bits_;
  const std::int64_t strips_per_tile_, groups_per_tile_, num_tiles_, num_query_tiles_;
  std::vector<std::uint32_t> shown_, hidden_;  // one word more, which stays zero
};

std::vector<std::vector<TileCounts>> count_dense_tiles(const AttentionProblem& problem,
                                                       const GroupBits& bits, std::int64_t tile_q,
                                                       std::int64_t tile_kv) {
  TileRows rows(problem, bits, tile_q, tile_kv);
  std::vector<std::vector<TileCounts>> counts(static_cast<std::size_t>(bits.patterns));
  for (std::int64_t pattern = 0; pattern < bits.patterns; ++pattern)
    for (std::int64_t query_tile = 0; query_tile < rows.num_query_tiles(); ++query_tile) {
      rows.select(pattern, query_tile);
      counts[static_cast<std::size_t>(pattern)].push_back(rows.counts());
    }
  return counts;
}

}  // namespace

DenseMask dense_mask(const AttentionProblem& problem, const TensorView& visible) {
  const std::int64_t full[4] = {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  const int rank = visible.shape.rank();
  bool right = visible.defined() && visible.dtype == DType::kBool && (rank == 2 || rank == 4);
  DenseMask mask;
  mask.data = visible.data;
  for (int i = 4 - rank, from = 0; right && from < rank; ++i, ++from) {
    const bool may_broadcast = rank == 4 && i < 3;
    right = visible.shape[from] == full[i] || (may_broadcast && visible.shape[from] == 1);
    mask.strides[i] = visible.shape[from] == 1 ? 0 : visible.strides[from];
  }
  STOF_CHECK(right, kInvalidArgument,
             "visible: expected bool[{2}, {3}] or bool[{0}|1, {1}|1, {2}|1, {3}], got {4}", full[0],
             full[1], full[2], full[3], visible.defined() ? visible.describe() : "nothing");
  if (problem.seq_kv == 1) mask.strides[3] = 1;
  mask.batch_extent = mask.strides[0] == 0 ? 1 : problem.batch;
  mask.head_extent = mask.strides[1] == 0 ? 1 : problem.num_heads_q;
  mask.wide_loads =
      mask.strides[3] == 1 && reinterpret_cast<std::uintptr_t>(mask.data) % 16 == 0 &&
      std::all_of(mask.strides, mask.strides + 3, [](std::int64_t s) { return s % 16 == 0; });
  return mask;
}

GroupBits GroupBits::of(const AttentionProblem& problem, const DenseMask& mask) {
  GroupBits bits;
  bits.patterns = mask.num_patterns();
  bits.strips = ceil_div(problem.seq_q, kStripRows);
  bits.words = ceil_div(problem.seq_kv, 32 * kGroupKeys);
  const std::int64_t size = bits.patterns * bits.strips * bits.words;
  constexpr std::int64_t kMost = (64 << 20) / 8;  // 64 MiB of scratch, both arrays
  STOF_CHECK(size <= kMost, kUnsupported,
             "visible: {} strips of 64 queries times 512 keys are more than {}; give heads that "
             "share a mask stride 0, or the mask as an expression",
             size, kMost);
  bits.shown.assign(static_cast<std::size_t>(size), 0);
  bits.hidden.assign(static_cast<std::size_t>(size), 0);
  return bits;
}

std::vector<ConfigCandidate> dense_candidates(const AttentionProblem& problem,
                                              const DenseMask& mask, const GroupBits& bits,
                                              const KernelTarget& target) {
  const auto pattern = [&](std::int64_t b, std::int64_t h) {
    return b % mask.batch_extent * mask.head_extent + h % mask.head_extent;
  };
  std::map<std::pair<int, int>, std::vector<std::vector<TileCounts>>> counts;  // by tile size
  std::vector<ConfigCandidate> candidates;
  for (const auto& config :
       blockwise_configs(problem, mask.head_extent == 1, target, "boolean tensors")) {
    const auto [at, is_new] = counts.try_emplace({config.query_rows(), config.tile_kv});
    if (is_new) at->second = count_dense_tiles(problem, bits, config.query_rows(), config.tile_kv);
    candidates.push_back(
        {config, predict_us(make_workload(problem, at->second, pattern, config, target),
                            unit_costs(config, target))});
  }
  sort_candidates(&candidates);
  return candidates;
}

DensePlan dense_plan(const AttentionProblem& problem, const DenseMask& mask, const GroupBits& bits,
                     const codegen::AttentionConfig& config) {
  DensePlan out;
  plan::MaskPlan& plan = out.plan;
  plan.config = plan_config(config);
  plan.shape = {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  plan.batch_extent = mask.batch_extent;
  plan.head_extent = mask.head_extent;
  plan.num_patterns = static_cast<std::int32_t>(bits.patterns);
  plan.pattern_of.resize(static_cast<std::size_t>(bits.patterns));
  std::iota(plan.pattern_of.begin(), plan.pattern_of.end(), 0);
  TileRows rows(problem, bits, config.query_rows(), config.tile_kv);
  for (std::int32_t pattern = 0; pattern < plan.num_patterns; ++pattern)
    for (std::int64_t query_tile = 0; query_tile < rows.num_query_tiles(); ++query_tile) {
      rows.select(pattern, query_tile);
      plan::WorkItem item;
      item.pattern = pattern;
      item.q_tile = static_cast<std::int32_t>(query_tile);
      item.partial_begin = static_cast<std::int64_t>(plan.partial.size());
      item.run_begin = static_cast<std::int64_t>(plan.runs.size());
      bool in_run = false;
      for (std::int64_t tile = 0; tile < rows.num_tiles(); ++tile) {
        const TileClass kind = rows.at(tile);
        const auto key_tile = static_cast<std::int32_t>(tile);
        if (kind == TileClass::kPartial) {
          plan.partial.push_back({key_tile, static_cast<std::int32_t>(out.tiles.size())});
          out.tiles.push_back(
              {static_cast<std::int32_t>(pattern * rows.num_query_tiles() + query_tile), key_tile});
        }
        if (kind == TileClass::kFull) {
          if (!in_run) plan.runs.push_back({key_tile, key_tile});
          ++plan.runs.back().end;
        }
        in_run = kind == TileClass::kFull;
      }
      item.partial_end = static_cast<std::int64_t>(plan.partial.size());
      item.run_end = static_cast<std::int64_t>(plan.runs.size());
      plan.items.push_back(item);
    }
  return out;
}

}  // namespace stof::cuda
