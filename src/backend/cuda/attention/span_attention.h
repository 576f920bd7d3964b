#pragma once
// Attention of new tokens over caches, planned for one batch alone.

#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "graph/cache_pages.h"
#include "stof/attention.h"
#include "stof/cuda_attention.h"
#include "stof/mask.h"

namespace stof::cuda {

/// Any number of new tokens under any mask, where the keys of each sequence lie one behind the
/// other: the chunks of a prompt, and masks that the decode kernel does not know. Immutable; run()
/// as of AttentionPlan.
class SpanAttention {
 public:
  /// The mask is aligned as the problem says: to the last of a sequence's keys, but for
  /// cross-attention. Throws Unsupported for a sequence whose
  /// pages are scattered or a mask that differs between sequences, and what AttentionPlan::build()
  /// throws.
  SpanAttention(const AttentionProblem& problem, const mask::Mask& mask,
                const std::vector<std::int64_t>& offsets, const graph::CachePages& cache,
                const Device& device);

  /// q and out [rows, heads, head_dim], k and v [cache's rows, kv_heads, head_dim] of the whole
  /// cache. Asynchronous.
  void run(const AttentionTensors& tensors, CUstream stream) const;

 private:
  struct Part {
    AttentionPlan plan;
    std::int64_t first_row, first_key;  ///< of the batch, of the cache
  };
  std::vector<Part> parts_;  ///< one a sequence
};

}  // namespace stof::cuda
