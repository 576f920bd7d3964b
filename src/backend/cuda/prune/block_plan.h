#pragma once
// What of block_topk on a GPU follows from the base mask alone.

#include <cstdint>
#include <vector>

#include "stof/attention.h"
#include "stof/prune.h"

namespace stof::cuda {

struct BlockPrunePlan {
  std::int64_t q_blocks = 0, kv_blocks = 0;
  std::vector<std::uint8_t> states;  ///< [q_blocks, kv_blocks] of kernels/prune's BlockState
  std::vector<std::int32_t> kept;    ///< [q_blocks]: blocks of a row
  std::vector<std::uint8_t> used_q, used_k;  ///< [seq_q], [seq_kv]: 1 where a visible pair is
  std::int32_t max_kept = 1;
  double kept_fraction = 1;  ///< of the visible blocks
};

/// Throws what BlockPruner::build() does of the request.
BlockPrunePlan plan_block_prune(const AttentionProblem& problem,
                                const mask::PruneSettings& settings, const mask::Mask& base);

/// Whether lists of the blocks that `base` shows a pair of must be causal to show what it does.
/// Throws Unsupported where neither whole blocks nor causal ones are it, which lists cannot say.
bool lists_are_causal(const AttentionProblem& problem, const mask::PruneSettings& settings,
                      const mask::Mask& base);

}  // namespace stof::cuda
