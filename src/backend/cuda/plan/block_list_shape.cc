#include "core/check.h"
#include "stof/cuda_block_lists.h"

namespace stof::cuda {

std::int64_t BlockListShape::num_list_heads(const AttentionProblem& problem) const {
  return per_kv_head ? problem.num_heads_kv : problem.num_heads_q;
}

std::int64_t BlockListShape::num_q_blocks(const AttentionProblem& problem) const {
  return (problem.seq_q + block_q - 1) / block_q;
}

std::int64_t BlockListShape::num_kv_blocks(const AttentionProblem& problem) const {
  return (problem.seq_kv + block_kv - 1) / block_kv;
}

void BlockListShape::validate(const AttentionProblem& problem) const {
  for (const auto& [field, block] :
       {std::pair{"block_q", block_q}, std::pair{"block_kv", block_kv}})
    STOF_CHECK(block >= 64 && block % 64 == 0, kUnsupported,
               "{}: the GPU kernels take multiples of 64, got {}; give the lists as a mask "
               "(mask::block_list) to AttentionPlan",
               field, block);
  STOF_CHECK(max_blocks >= 0, kInvalidArgument, "max_blocks: expected 0 and more, got {}",
             max_blocks);
  STOF_CHECK(expected_share > 0 && expected_share <= 1, kInvalidArgument,
             "expected_share: expected more than 0 and at most 1, got {}", expected_share);
  if (causal) {
    STOF_CHECK(block_q == block_kv && block_q <= 128, kUnsupported,
               "causal: expected square blocks of 64 or 128, got {} x {}", block_q, block_kv);
    const bool shifted = problem.alignment == mask::Alignment::kBottomRight;
    const std::int64_t offset = shifted ? problem.seq_kv - problem.seq_q : 0;
    STOF_CHECK(offset % block_q == 0, kUnsupported,
               "causal: expected seq_kv - seq_q to be a multiple of the block of {}, got {}",
               block_q, offset);
    STOF_CHECK(key_block_sizes.empty(), kUnsupported, "causal: expected no key_block_sizes, got {}",
               key_block_sizes.size());
  }
  if (key_block_sizes.empty()) return;
  const auto blocks = static_cast<std::size_t>(num_kv_blocks(problem));
  STOF_CHECK(key_block_sizes.size() == blocks, kInvalidArgument,
             "key_block_sizes: expected one for each of {} key blocks, got {}", blocks,
             key_block_sizes.size());
  for (std::size_t i = 0; i < blocks; ++i)
    STOF_CHECK(key_block_sizes[i] >= 0 && key_block_sizes[i] <= block_kv, kInvalidArgument,
               "key_block_sizes[{}]: expected 0..{}, got {}", i, block_kv, key_block_sizes[i]);
}

}  // namespace stof::cuda
