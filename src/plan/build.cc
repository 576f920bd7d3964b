// build_mask_plan: BlockMask -> MaskPlan.

#include <algorithm>

#include "core/bits.h"
#include "core/cancel.h"
#include "core/check.h"
#include "plan/config.h"
#include "plan/retile.h"
#include "stof/mask_plan.h"

namespace stof::plan {
namespace {

std::int64_t num_tiles(const std::vector<TileRun>& runs) {
  std::int64_t count = 0;
  for (const TileRun& run : runs) count += run.end - run.begin;
  return count;
}

/// Appends tiles [begin, end) of the row's runs, counted along the runs, to the plan.
void append_runs(const std::vector<TileRun>& runs, std::int64_t begin, std::int64_t end,
                 MaskPlan& plan) {
  std::int64_t position = 0;
  for (const TileRun& run : runs) {
    const std::int64_t length = run.end - run.begin;
    const std::int64_t first = std::max<std::int64_t>(begin - position, 0);
    const std::int64_t last = std::min(end - position, length);
    if (first < last)
      plan.runs.push_back({static_cast<std::int32_t>(run.begin + first),
                           static_cast<std::int32_t>(run.begin + last)});
    position += length;
  }
}

/// One item, or as many nearly equal ones as the limit asks for. Split i walks tiles
/// [i*n/splits, (i+1)*n/splits) of the row's partial tiles followed by its full ones.
void append_items(const TileRow& row, WorkItem item, MaskPlan& plan) {
  const auto num_partial = static_cast<std::int64_t>(row.partial.size());
  const std::int64_t total = num_partial + num_tiles(row.runs);
  const std::int64_t limit = plan.config.max_tiles_per_split;
  const std::int64_t splits = limit > 0 ? std::max<std::int64_t>(ceil_div(total, limit), 1) : 1;
  item.num_splits = static_cast<std::int32_t>(splits);
  for (std::int64_t split = 0; split < splits; ++split) {
    const std::int64_t begin = total / splits * split + std::min(split, total % splits);
    const std::int64_t end = begin + total / splits + (split < total % splits ? 1 : 0);
    item.split = static_cast<std::int32_t>(split);
    item.partial_begin = static_cast<std::int64_t>(plan.partial.size());
    const std::int64_t first = std::min(begin, num_partial), last = std::min(end, num_partial);
    plan.partial.insert(plan.partial.end(), row.partial.begin() + first,
                        row.partial.begin() + last);
    item.partial_end = static_cast<std::int64_t>(plan.partial.size());
    item.run_begin = static_cast<std::int64_t>(plan.runs.size());
    append_runs(row.runs, std::max<std::int64_t>(begin - num_partial, 0),
                std::max<std::int64_t>(end - num_partial, 0), plan);
    item.run_end = static_cast<std::int64_t>(plan.runs.size());
    item.cost = item_cost(last - first, (end - begin) - (last - first));
    plan.items.push_back(item);
  }
}

}  // namespace

MaskPlan build_tileless_plan(const mask::ScoreShape& shape, const PlanConfig& config) {
  check_config(config);
  MaskPlan plan;
  plan.config = config;
  plan.shape = shape;
  plan.num_patterns = 1;
  plan.pattern_of = {0};
  for (std::int64_t q_tile = 0; q_tile < plan.num_q_tiles(); ++q_tile) {
    WorkItem item;
    item.q_tile = static_cast<std::int32_t>(q_tile);
    append_items({}, item, plan);
  }
  return plan;
}

MaskPlan build_mask_plan(const mask::BlockMask& mask, const PlanConfig& config) {
  check_config(config);
  MaskPlan plan;
  plan.config = config;
  plan.shape = mask.shape();
  plan.batch_extent = mask.batch_extent();
  plan.head_extent = mask.head_extent();
  plan.num_patterns = static_cast<std::int32_t>(mask.num_patterns());
  for (std::int64_t b = 0; b < plan.batch_extent; ++b)
    for (std::int64_t h = 0; h < plan.head_extent; ++h)
      plan.pattern_of.push_back(static_cast<std::int32_t>(mask.pattern_index(b, h)));

  Retiler retiler(mask, config);
  TileRow row;
  for (std::int32_t pattern = 0; pattern < plan.num_patterns; ++pattern)
    for (std::int64_t q_tile = 0; q_tile < plan.num_q_tiles(); ++q_tile) {
      check_cancelled();
      retiler.read(pattern, q_tile, row);
      WorkItem item;
      item.pattern = pattern;
      item.q_tile = static_cast<std::int32_t>(q_tile);
      append_items(row, item, plan);
    }
  plan.payloads = retiler.take_payloads();
  // Dearest first keeps the end of a dynamically scheduled run short (longest processing time).
  std::sort(plan.items.begin(), plan.items.end(), queue_order);
  return plan;
}

}  // namespace stof::plan
