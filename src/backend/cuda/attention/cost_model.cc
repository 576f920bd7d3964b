#include "backend/cuda/attention/cost_model.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/attention/calibration.h"
#include "backend/cuda/attention/queue.h"

namespace stof::cuda {
namespace {

/// What score modifications add to a tile, estimated from instructions and bytes, not measured:
/// ALiBi one multiply-add a score beside about ten operations; a bias is read once a score, at a
/// multiprocessor's share of 4.8 TB/s; a position bias twice from the L1 cache, a warp's 32 scores
/// a cycle (near the diagonal: tiles beyond the reach cost less).
constexpr double kAlibiFactor = 1.1;
constexpr double kBiasBytesPerNs = 36;

/// A score modification's instructions, a warp's 32 scores each: four a cycle at 1.7 GHz, of which
/// half are taken by what else the kernel issues. Estimated, as codegen's count of them is.
constexpr double kNsPerInstruction = 0.009;

/// What a merging pass adds to an item: stored rows are read and written at a multiprocessor's
/// share of memory bandwidth. Fitted to the strided mask at D=64; at D=128 its rows take twice as
/// long, where no other way to run the mask is near.
constexpr double kMergeBytesPerNs = 40;
constexpr double kPositionNsPerScore = 0.037;

/// Key intervals [begin, end) in elements, ascending; touching ones need not be merged.
struct Span {
  std::int64_t begin, end;
};

/// Appends a tile row's spans: full ones and all non-empty ones.
void collect_spans(const mask::BlockPattern& pattern, std::int64_t row, std::int64_t seq_kv,
                   std::vector<Span>* full, std::vector<Span>* any) {
  const auto r = static_cast<std::size_t>(row);
  auto run = pattern.full_run_ptr[r];
  auto part = pattern.partial_ptr[r];
  const auto push = [&](std::vector<Span>* spans, std::int64_t begin, std::int64_t end) {
    end = std::min(end * mask::kOuterTile, seq_kv);
    begin *= mask::kOuterTile;
    if (!spans->empty() && spans->back().end == begin)
      spans->back().end = end;
    else
      spans->push_back({begin, end});
  };
  while (run < pattern.full_run_ptr[r + 1] || part < pattern.partial_ptr[r + 1]) {
    const bool take_run = part == pattern.partial_ptr[r + 1] ||
                          (run < pattern.full_run_ptr[r + 1] &&
                           pattern.full_runs[static_cast<std::size_t>(run)].begin <
                               pattern.partial[static_cast<std::size_t>(part)].col);
    if (take_run) {
      const mask::FullRun& f = pattern.full_runs[static_cast<std::size_t>(run++)];
      push(full, f.begin, f.end);
      push(any, f.begin, f.end);
    } else {
      const std::int64_t col = pattern.partial[static_cast<std::size_t>(part++)].col;
      push(any, col, col + 1);
    }
  }
}

/// Tiles of width `tile` that touch (or, with kInside, lie inside) a union of ascending spans.
std::int64_t tiles_touched(const std::vector<Span>& spans, std::int64_t tile) {
  std::int64_t count = 0, next = 0;
  for (const Span& span : spans) {
    const std::int64_t first = std::max(span.begin / tile, next), last = (span.end - 1) / tile;
    if (last >= first) count += last - first + 1;
    next = std::max(next, last + 1);
  }
  return count;
}

std::int64_t tiles_inside(const std::vector<Span>& spans, std::int64_t tile) {
  std::int64_t count = 0;
  for (const Span& span : spans)
    count += std::max<std::int64_t>(0, span.end / tile - (span.begin + tile - 1) / tile);
  return count;
}

std::vector<Span> unite(std::vector<Span> a, const std::vector<Span>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const Span& x, const Span& y) { return x.begin < y.begin; });
  std::vector<Span> out;
  for (const Span& span : a) {
    if (!out.empty() && span.begin <= out.back().end)
      out.back().end = std::max(out.back().end, span.end);
    else
      out.push_back(span);
  }
  return out;
}

std::vector<Span> intersect(const std::vector<Span>& a, const std::vector<Span>& b) {
  std::vector<Span> out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin, b[j].begin), end = std::min(a[i].end, b[j].end);
    if (begin < end) out.push_back({begin, end});
    (a[i].end < b[j].end ? i : j)++;
  }
  return out;
}

double cost_of(const TileCounts& tiles, const UnitCosts& costs) {
  return costs.item_ns + costs.full_ns * static_cast<double>(tiles.full) +
         costs.partial_ns * static_cast<double>(tiles.partial);
}

}  // namespace

std::vector<std::vector<TileCounts>> count_tiles(const mask::BlockMask& mask, std::int64_t tile_q,
                                                 std::int64_t tile_kv) {
  std::vector<std::vector<TileCounts>> counts(static_cast<std::size_t>(mask.num_patterns()));
  const std::int64_t slabs = tile_q / mask::kOuterTile;
  for (std::int64_t p = 0; p < mask.num_patterns(); ++p)
    for (std::int64_t row = 0; row < mask.num_tile_rows(); row += slabs) {
      std::vector<Span> full, any;
      collect_spans(mask.pattern(p), row, mask.shape().seq_kv, &full, &any);
      for (std::int64_t s = 1; s < slabs && row + s < mask.num_tile_rows(); ++s) {
        std::vector<Span> more_full, more_any;
        collect_spans(mask.pattern(p), row + s, mask.shape().seq_kv, &more_full, &more_any);
        full = intersect(full, more_full);
        any = unite(std::move(any), more_any);
      }
      const std::int64_t inside = tiles_inside(full, tile_kv);
      counts[static_cast<std::size_t>(p)].push_back({inside, tiles_touched(any, tile_kv) - inside});
    }
  return counts;
}

Workload make_workload(const AttentionProblem& problem, const mask::BlockMask& mask,
                       const codegen::AttentionConfig& config, const KernelTarget& target) {
  return make_workload(
      problem, count_tiles(mask, config.query_rows(), config.tile_kv),
      [&](std::int64_t b, std::int64_t h) { return mask.pattern_index(b, h); }, config, target);
}

Workload make_workload(const AttentionProblem& problem,
                       const std::vector<std::vector<TileCounts>>& counts,
                       const std::function<std::int64_t(std::int64_t, std::int64_t)>& pattern_of,
                       const codegen::AttentionConfig& config, const KernelTarget& target) {
  const UnitCosts costs = unit_costs(config, target);
  Workload work;
  const std::int64_t pack = config.heads_per_record();
  double longest = -1;
  std::vector<std::int64_t> uses(counts.size(), 0);  // heads that share a pattern are counted once
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_q; h += pack)
      ++uses[static_cast<std::size_t>(pattern_of(b, h))];
  for (std::size_t pattern = 0; pattern < counts.size(); ++pattern) {
    if (uses[pattern] == 0) continue;
    const auto times = static_cast<double>(uses[pattern]);
    for (const TileCounts& tiles : counts[pattern]) {
      work.full += times * static_cast<double>(tiles.full);
      work.partial += times * static_cast<double>(tiles.partial);
      work.items += times;
      if (cost_of(tiles, costs) > longest) {
        longest = cost_of(tiles, costs);
        work.longest = tiles;
      }
    }
  }
  work.num_blocks = target.num_sms * config.blocks_per_sm;
  work.can_split = can_split(config);
  return work;
}

namespace {

/// Without what score modifications add.
UnitCosts plain_unit_costs(const codegen::AttentionConfig& config, const KernelTarget& target) {
  const Calibration& calibration = Calibration::of_gpu(target.gpu);
  if (const CalibratedKernel* same = calibration.find(config)) return same->costs;
  if (config.family == codegen::KernelFamily::kSm80)
    return sm80_unit_costs(config, target.compute_capability);
  const CalibratedKernel& like = *calibration.nearest(config);
  const auto work = [](int rows, int tile_kv, int head_dims) {
    return 1.0 * rows * tile_kv * head_dims;
  };
  const double ratio = work(config.query_rows() * config.heads_per_record(), config.tile_kv,
                            config.head_dim_qk + config.head_dim_v) /
                       work(like.rows, like.tile_kv, 2 * like.head_dim);
  return {like.costs.full_ns * ratio, like.costs.partial_ns * ratio,
          like.costs.item_ns * std::max(1.0, ratio), like.costs.launch_ns};
}

}  // namespace

UnitCosts unit_costs(const codegen::AttentionConfig& config, const KernelTarget& target) {
  codegen::AttentionConfig plain = config;
  plain.alibi = plain.bias = plain.position_bias = plain.sink = plain.varlen = plain.grid_order =
      false;
  plain.score_mod = nullptr;
  UnitCosts costs = plain_unit_costs(plain, target);
  const double rows = 1.0 * config.query_rows() * config.heads_per_record();
  if (config.merge)
    costs.item_ns += 4 * rows * config.head_dim_v * config.blocks_per_sm / kMergeBytesPerNs;
  for (double* tile_ns : {&costs.full_ns, &costs.partial_ns}) {
    if (config.alibi) *tile_ns *= kAlibiFactor;
    const double scores = rows * config.tile_kv * config.blocks_per_sm;
    if (config.bias) *tile_ns += 4 * scores / kBiasBytesPerNs;
    if (config.position_bias) *tile_ns += scores * kPositionNsPerScore;
    if (config.score_mod) *tile_ns += scores * config.score_mod->cost * kNsPerInstruction;
  }
  return costs;
}

double predict_us(const Workload& work, const UnitCosts& costs) {
  const double total =
      costs.full_ns * work.full + costs.partial_ns * work.partial + costs.item_ns * work.items;
  const double longest = cost_of(work.longest, costs);
  const double mean_item = work.items > 0 ? total / work.items : 0;
  const double share = total / work.num_blocks;
  // A few items that are all alike fill whole waves, and the last wave may be cut so that it fills
  // too. With more of them the waves blur.
  constexpr double kFewWaves = 4;
  if (longest < 1.2 * mean_item && work.items < kFewWaves * work.num_blocks) {
    const auto items = static_cast<std::int64_t>(work.items);
    const std::int64_t rest = items % work.num_blocks;
    const double tiles = (work.full + work.partial) / std::max(work.items, 1.0);
    const int parts = work.can_split ? tail_parts(rest, work.num_blocks, tiles) : 1;
    const double tail = rest == 0 ? 0
                                  : tail_rounds(rest, work.num_blocks, tiles, parts) /
                                        (tiles + kRecordCost) * mean_item;
    return (costs.launch_ns + static_cast<double>(items / work.num_blocks) * mean_item + tail) /
           1000;
  }
  // Unlike ones fill the gaps of the last wave; what is too long for that is cut.
  const double bar =
      work.can_split ? longest_uncut(share / costs.full_ns) * costs.full_ns : longest;
  return (costs.launch_ns +
          std::max(share + 0.5 * std::min(mean_item, bar), std::min(longest, bar))) /
         1000;
}

}  // namespace stof::cuda
