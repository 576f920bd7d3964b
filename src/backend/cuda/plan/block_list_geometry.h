#pragma once
// What of a block-list plan follows from shapes alone: extents, capacities, which key tiles are
// whole, and the order's groups. Nothing here depends on the lists.

#include <cstdint>
#include <vector>

#include "backend/cuda/attention/config_choice.h"
#include "backend/cuda/plan/block_list_params.h"
#include "stof/cuda_block_lists.h"

namespace stof::cuda {

struct BlockListGeometry {
  BlockListParams params{};  ///< all but addresses and strides; max_blocks is the capacity
  std::vector<std::uint32_t> full_tiles, partial_tiles;  ///< bits of key tiles
  std::vector<std::int32_t> tile_payloads;               ///< by tile
  std::vector<std::uint32_t> payloads;

  std::int64_t list_blocks() const;   ///< thread blocks of the list kernel
  std::int64_t order_blocks() const;  ///< thread blocks of the order kernel
};

/// Throws Unsupported where the lists' capacity passes what kernels count.
BlockListGeometry block_list_geometry(const AttentionProblem& problem, const BlockListShape& shape,
                                      const codegen::AttentionConfig& config, int num_blocks);

/// Kernels whose tiles divide the blocks, cheapest prediction first. Throws Unsupported naming why
/// there are none.
std::vector<ConfigCandidate> block_list_candidates(const AttentionProblem& problem,
                                                   const BlockListShape& shape,
                                                   const KernelTarget& target);

/// The text of check()'s error.
std::string describe_fault(const ListFault& fault, const AttentionProblem& problem,
                           const BlockListShape& shape);

}  // namespace stof::cuda
