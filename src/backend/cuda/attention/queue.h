#pragma once
// The order in which blocks take work, and query tiles shared by several blocks (split-KV).

#include <cstdint>
#include <vector>

#include "backend/cuda/attention/device_plan.h"

namespace stof::cuda {

/// A query tile with its cost in key tiles, start and end included.
struct QueuedItem {
  WorkRecord record;
  double cost = 0;
  std::int64_t locality = 0;  ///< items with the same value read the same keys and values
};

/// Consecutive query heads whose keys and values stay in L2 together: one locality.
std::int64_t heads_per_locality(const AttentionProblem& problem);

/// What the start and end of a record cost, in key tiles.
inline constexpr double kRecordCost = 1.5;

/// The cost above which an item is cut into parts, where a block's fair share of all costs is
/// `share`.
double longest_uncut(double share);

/// Into how many parts the last `remainder` of many equal items of `tiles` key tiles are cut, so
/// that `num_blocks` blocks finish together; 1 = not at all.
int tail_parts(std::int64_t remainder, int num_blocks, double tiles);

/// Key tiles that `num_blocks` blocks take for the last `remainder` items when each is cut so.
double tail_rounds(std::int64_t remainder, int num_blocks, double tiles, int parts);

/// Fills plan->records with the items in queue order: localities one after the other, dearest first
/// inside one where costs differ; items that alone would stretch the makespan are cut into parts
/// and go first. At most `max_parts` parts are made. Appends to plan->runs and plan->parts.
void fill_queue(std::vector<QueuedItem> items, int num_blocks, std::int64_t max_parts,
                DevicePlan* plan);

}  // namespace stof::cuda
