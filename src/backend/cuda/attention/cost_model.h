#pragma once
// Predicts how long a kernel configuration takes on a mask, from counts of its tiles.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/attention/configs.h"
#include "codegen/attention.h"
#include "stof/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

/// Work of one query tile at a configuration's tile size.
struct TileCounts {
  std::int64_t full = 0, partial = 0;
};

/// Counts per (pattern, query tile), without building the plan: every 64x64 tile is full, partial
/// or empty, and a larger tile is full only where all of its parts are.
std::vector<std::vector<TileCounts>> count_tiles(const mask::BlockMask& mask, std::int64_t tile_q,
                                                 std::int64_t tile_kv);

/// What one launch has to do.
struct Workload {
  double full = 0, partial = 0, items = 0;  ///< over all heads, in tiles and items
  TileCounts longest;                       ///< the dearest single item
  int num_blocks = 1;                       ///< persistent blocks
  bool can_split = true;                    ///< long items are shared by several blocks
};
Workload make_workload(const AttentionProblem& problem, const mask::BlockMask& mask,
                       const codegen::AttentionConfig& config, const KernelTarget& target);

/// The same from counts per (pattern, query tile); pattern_of(batch, head) says which are whose.
Workload make_workload(const AttentionProblem& problem,
                       const std::vector<std::vector<TileCounts>>& counts,
                       const std::function<std::int64_t(std::int64_t, std::int64_t)>& pattern_of,
                       const codegen::AttentionConfig& config, const KernelTarget& target);

/// Nanoseconds a persistent block needs, for one configuration on one GPU.
struct UnitCosts {
  double full_ns = 0;     ///< a full tile
  double partial_ns = 0;  ///< a partial tile
  double item_ns = 0;     ///< a query tile's start and end
  double launch_ns = 0;   ///< the launch, and the first tile's latency
};
/// Measured costs where the configuration was calibrated on the target's GPU (else the H200).
/// Others are, for sm90, scaled by operations from the nearest calibrated one and, for sm80,
/// guessed from operations (cost_model_sm80.cc).
UnitCosts unit_costs(const codegen::AttentionConfig& config, const KernelTarget& target);
UnitCosts sm80_unit_costs(const codegen::AttentionConfig& config, int compute_capability);

/// Microseconds. The queue is dearest first, so the makespan is near the larger of the mean load
/// of a block and its longest item, plus part of an item.
double predict_us(const Workload& work, const UnitCosts& costs);

}  // namespace stof::cuda
