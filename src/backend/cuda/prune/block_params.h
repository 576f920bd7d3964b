#pragma once
// Mirrors kernels/prune/params.cuh.

#include <cstdint>

#include "backend/cuda/driver.h"

namespace stof::cuda {

struct BlockPruneParams {
  CUdeviceptr q = 0, k = 0;
  std::int64_t q_strides[3] = {}, k_strides[3] = {};
  CUdeviceptr pooled_q = 0, pooled_k = 0, used_q = 0, used_k = 0, states = 0, kept = 0, ids = 0;
  std::int32_t batch = 0, heads_q = 0, heads_kv = 0, seq_q = 0, seq_kv = 0, block = 0, q_blocks = 0,
               kv_blocks = 0, max_kept = 0;
  float scale = 0;
  std::int32_t pool_blocks_q = 0, padding = 0;
};
static_assert(sizeof(BlockPruneParams) == 168, "params.cuh asserts the same");

}  // namespace stof::cuda
