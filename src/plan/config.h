#pragma once
// What building and validating a MaskPlan share.

#include <cstdint>
#include <tuple>

#include "stof/mask_plan.h"

namespace stof::plan {

inline constexpr std::int32_t kMaxTile = 512;

/// The plan of a shape without queries or keys, which has no BlockMask: items without tiles, which
/// store zeros.
MaskPlan build_tileless_plan(const mask::ScoreShape& shape, const PlanConfig& config);

/// Throws InvalidArgument naming the field, what it may be and what it is.
void check_config(const PlanConfig& config);

/// Cost of an item in full tiles. A partial tile's bits are turned into vector masks: over random
/// bits, where no part can be skipped, that took 12 % (head_dim 64) to 20 % (32) more on AVX2.
inline double item_cost(std::int64_t num_partial, std::int64_t num_full) {
  constexpr double kPartialCost = 1.15;
  return kPartialCost * static_cast<double>(num_partial) + static_cast<double>(num_full);
}

/// The queue's total order: dearest first, then by place.
inline bool queue_order(const WorkItem& a, const WorkItem& b) {
  return std::tuple(-a.cost, a.pattern, a.q_tile, a.split) <
         std::tuple(-b.cost, b.pattern, b.q_tile, b.split);
}

}  // namespace stof::plan
