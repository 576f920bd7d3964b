#include "backend/cuda/prune/block_plan.h"

#include <omp.h>

#include <algorithm>
#include <numeric>

#include "core/bits.h"
#include "core/check.h"
#include "mask/dynamic/block_grid.h"
#include "stof/block_mask.h"

namespace stof::cuda {
namespace {

constexpr std::int64_t kMaxKeyBlocks = 4096;  // a row's scores are in shared memory

void check_request(const AttentionProblem& problem, const mask::PruneSettings& settings) {
  problem.validate();
  settings.validate();
  STOF_CHECK(settings.method == mask::PruneMethod::kBlockTopK, kUnsupported,
             "method: the GPU chooses by block_topk, got {}; use mask::prune for it",
             mask::to_string(settings.method));
  const std::int64_t blocks = ceil_div(problem.seq_kv, settings.block);
  STOF_CHECK(blocks <= kMaxKeyBlocks, kUnsupported,
             "block: {} keys are {} blocks of {}, the GPU takes up to {}; use larger blocks",
             problem.seq_kv, blocks, settings.block, kMaxKeyBlocks);
}

mask::PruneHead head_of(const AttentionProblem& p, const mask::Mask& bound) {
  mask::PruneHead head;  // by the CPU pruner's own code
  head.q.rows = p.seq_q;
  head.k.rows = p.seq_kv;
  head.base = &bound;
  head.query_offset = p.alignment == mask::Alignment::kBottomRight ? p.seq_kv - p.seq_q : 0;
  head.num_threads = omp_get_max_threads();
  return head;
}

/// Whether the mask, bound, shows no pair of the rectangle.
bool shows_nothing(const mask::Mask& mask, const mask::TileRect& rect) {
  const mask::TileClass shown = mask.classify(0, 0, rect);
  if (shown != mask::TileClass::kPartial) return shown == mask::TileClass::kEmpty;
  for (std::int64_t q = rect.q_begin; q < rect.q_end; ++q)  // it is sound, not always exact
    for (std::int64_t k = rect.k_begin; k < rect.k_end; ++k)
      if (mask.visible(0, 0, q, k)) return false;
  return true;
}

}  // namespace

bool lists_are_causal(const AttentionProblem& p, const mask::PruneSettings& settings,
                      const mask::Mask& base) {
  check_request(p, settings);
  const mask::ScoreShape shape{p.batch, p.num_heads_q, p.seq_q, p.seq_kv};
  const mask::Mask bound = base.bind(shape, p.alignment);
  const mask::BlockGrid grid(head_of(p, bound), settings);
  const auto same_as = [&](const mask::Mask& lists) {
    const mask::Mask differs = ((base & ~lists) | (lists & ~base)).bind(shape, p.alignment);
    for (std::int64_t row = 0; row < grid.num_rows(); ++row)
      for (std::int64_t col = 0; col < grid.num_cols(); ++col) {
        if (!grid.visible(row, col)) continue;
        const std::int64_t q = row * settings.block, k = col * settings.block;
        if (!shows_nothing(differs, {q, std::min(p.seq_q, q + settings.block), k,
                                     std::min(p.seq_kv, k + settings.block)}))
          return false;
      }
    return true;
  };
  if (same_as(mask::all())) return false;
  STOF_CHECK(
      same_as(mask::causal()), kUnsupported,
      "base: expected one that shows whole blocks of {}, or of them what a causal mask does, "
      "since lists name blocks; got {}; use mask::prune, which keeps any base",
      settings.block, base.describe());
  return true;
}

BlockPrunePlan plan_block_prune(const AttentionProblem& p, const mask::PruneSettings& settings,
                                const mask::Mask& base) {
  check_request(p, settings);
  const mask::ScoreShape shape{p.batch, p.num_heads_q, p.seq_q, p.seq_kv};
  const mask::Mask bound = base.bind(shape, p.alignment);
  const mask::BlockMask blocks = build_block_mask(bound, shape, p.alignment);
  STOF_CHECK(blocks.head_extent() == 1 && blocks.batch_extent() == 1, kUnsupported,
             "base: expected one mask for all heads and batch entries, got {}", base.describe());
  const mask::PruneHead head = head_of(p, bound);
  const mask::BlockGrid grid(head, settings);
  const mask::UsedRows used(head);
  const std::int64_t count = mask::blocks_to_keep(grid, settings.keep);
  BlockPrunePlan plan;
  plan.q_blocks = grid.num_rows();
  plan.kv_blocks = grid.num_cols();
  plan.used_q = used.queries;
  plan.used_k = used.keys;
  for (std::int64_t row = 0; row < grid.num_rows(); ++row) {
    plan.kept.push_back(static_cast<std::int32_t>(std::min(count, grid.num_visible(row))));
    plan.max_kept = std::max(plan.max_kept, plan.kept.back());
    for (std::int64_t col = 0; col < grid.num_cols(); ++col)
      plan.states.push_back(grid.must_stay(row, col) ? 2 : grid.visible(row, col) ? 1 : 0);
  }
  const auto kept = std::accumulate(plan.kept.begin(), plan.kept.end(), std::int64_t{0});
  if (grid.total_visible() > 0)
    plan.kept_fraction = static_cast<double>(kept) / static_cast<double>(grid.total_visible());
  return plan;
}

}  // namespace stof::cuda
