#pragma once
// Nodes that only bind() makes, for the registry to build them back from text and JSON.

#include <cstdint>
#include <memory>

#include "mask/node.h"
#include "stof/mask.h"

namespace stof::mask {

/// `child`, already resolved, marked as bound to a shape. Throws InvalidArgument on extents below
/// 0, or where the child's batch or head extent does not fit.
Mask make_bound(const Mask& child, const ScoreShape& shape, Alignment alignment);

/// random_blocks_count() with its number of block columns known; kv_blocks 0 is not yet bound.
Mask random_blocks_of_grid(std::int64_t block, std::int64_t count, std::uint64_t seed,
                           bool per_head, std::int64_t kv_blocks);

}  // namespace stof::mask
