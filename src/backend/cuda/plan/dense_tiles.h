#pragma once
// Boolean tensors in device memory: what they may look like, which tiles they have, and the plan
// the host makes of that. The tensor itself is read by kernels/plan/dense_mask.cuh alone.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/attention/config_choice.h"
#include "backend/cuda/attention/cost_model.h"
#include "stof/attention.h"
#include "stof/mask_plan.h"

namespace stof::cuda {

/// Mirrors Tile in kernels/plan/dense_mask.cuh: a partial tile whose payload the GPU fills.
struct DenseTile {
  std::int32_t row, key_tile;
};

/// A mask tensor as [batch, heads, seq_q, seq_kv].
struct DenseMask {
  const void* data = nullptr;
  std::int64_t strides[4] = {0, 0, 0, 0};          ///< bytes; 0 where broadcast
  std::int64_t batch_extent = 1, head_extent = 1;  ///< distinct patterns
  bool wide_loads = false;

  std::int64_t num_patterns() const { return batch_extent * head_extent; }
};

/// Throws InvalidArgument naming the shape expected and the one got.
DenseMask dense_mask(const AttentionProblem& problem, const TensorView& visible);

/// Strips of 64 query rows times groups of 16 keys: bit g % 32 of word
/// (pattern * strips + strip) * words + g / 32 says whether any pair is shown, and hidden.
struct GroupBits {
  std::int64_t patterns = 0, strips = 0, words = 0;
  std::vector<std::uint32_t> shown, hidden;

  /// Of that size, all zero. Throws Unsupported where both arrays would pass 64 MiB.
  static GroupBits of(const AttentionProblem& problem, const DenseMask& mask);
};

/// Cheapest prediction first. Throws Unsupported naming why there are none.
std::vector<ConfigCandidate> dense_candidates(const AttentionProblem& problem,
                                              const DenseMask& mask, const GroupBits& bits,
                                              const KernelTarget& target);

/// The mask's plan, without payloads: payload i is that of tiles[i].
struct DensePlan {
  plan::MaskPlan plan;
  std::vector<DenseTile> tiles;
};
DensePlan dense_plan(const AttentionProblem& problem, const DenseMask& mask, const GroupBits& bits,
                     const codegen::AttentionConfig& config);

}  // namespace stof::cuda
