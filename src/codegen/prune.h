#pragma once
// Kernels that choose key blocks by pooled scores: configuration and source text. The kernels are
// in kernels/prune.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

struct BlockPruneConfig {
  DType element = DType::kBFloat16;  ///< or float16
  int head_dim = 128;                ///< 8..256, a multiple of 8
  bool max_pooling = false;          ///< else the mean
  int key_blocks = 256;              ///< room for a row's: part of the compiled kernel's launch

  static constexpr int kPoolThreads = 128, kChooseThreads = 256, kChooseRows = 8;

  /// Token blocks that a thread block pools.
  int pooled_at_once() const { return kPoolThreads / (head_dim / 8); }
  int choose_shared_bytes() const { return kChooseRows * (8 * head_dim + 4 * key_blocks); }
  /// "prune_pool_blocks_bf16_128_mean_256"
  std::string name(const char* what) const;
  /// Throws Unsupported naming head dimension or element.
  void validate() const;
};

/// Translation units; their entries are `pool_blocks` and `choose_blocks`.
std::string emit_pool_blocks(const BlockPruneConfig& config);
std::string emit_choose_blocks(const BlockPruneConfig& config);

}  // namespace stof::codegen
