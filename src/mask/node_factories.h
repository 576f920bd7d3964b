#pragma once
// Nodes that only bind() makes, for the registry to build them back from text and JSON.

#include <cstdint>
#include <memory>
#include <string_view>

#include "mask/node.h"
#include "stof/mask.h"

namespace stof::mask {

/// `child`, already resolved, marked as bound to a shape. Throws InvalidArgument on extents below
/// 0, or where the child's batch or head extent does not fit.
Mask make_bound(const Mask& child, const ScoreShape& shape, Alignment alignment);

/// random_blocks_count() with the grid it is drawn on: q_blocks x kv_blocks blocks for each of
/// `heads` patterns (1 unless per_head). heads 0 is not yet bound.
Mask random_blocks_of_grid(std::int64_t block, std::int64_t count, std::uint64_t seed,
                           bool per_head, std::int64_t heads, std::int64_t q_blocks,
                           std::int64_t kv_blocks);

/// dense() of bits already packed. Throws InvalidArgument where the words don't fit the shape; bits
/// past the end of a row are ignored.
Mask dense_of_bits(std::shared_ptr<const BitArray> bits);

/// predicate() of tables of whole numbers.
Mask predicate_of_tables(std::string_view text, const IntTables& tables);

}  // namespace stof::mask
