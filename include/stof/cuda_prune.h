#pragma once
// Pruners on an NVIDIA GPU: key blocks chosen at run time from queries and keys in device memory.

#include <cstdint>
#include <memory>

#include "stof/cuda_block_lists.h"
#include "stof/prune.h"

namespace stof::cuda {

/// block_topk on the GPU: the choice of mask::prune(), bit for bit, as lists for a BlockListPlan.
/// How many blocks each row keeps follows from the base mask, so it is planned; which, is chosen at
/// every run. run() allocates, compiles and synchronises nothing and can be captured in CUDA
/// graphs.
class BlockPruner {
 public:
  /// Reads of the problem batch, heads, lengths, head_dim_qk, dtype (float16 or bfloat16), scale
  /// and alignment. `base`: only blocks that it shows a pair of are chosen from; of those it shows
  /// all, or what a causal mask does (shape() says which), since lists name blocks; it is the same
  /// for all heads and batch entries. Throws NotFound without a GPU, InvalidArgument naming a
  /// field, Unsupported naming what is not block_topk, a base that differs by head or hides other
  /// parts of blocks, a head_dim that is no multiple of 8 up to 256, and more key blocks than 4096
  /// or than a block's shared memory has room for.
  static BlockPruner build(const AttentionProblem& problem, const mask::PruneSettings& settings,
                           const mask::Mask& base, int device = 0);

  /// Chooses. q: [batch, num_heads_q, seq_q, head_dim_qk], k: [batch, num_heads_kv, seq_kv,
  /// head_dim_qk], in device memory, rows at multiples of 16 bytes, unit last stride. Asynchronous
  /// on `stream` (a CUstream; null = default stream); the lists are the pruner's and are those of
  /// the last run. Throws InvalidArgument naming the tensor.
  BlockLists run(const TensorView& q, const TensorView& k, void* stream) const;

  /// Blocks as a BlockListPlan takes them, causal where the base is: it needs sides of a multiple
  /// of 64, and causal ones of 64 or 128.
  BlockListShape shape() const;
  const AttentionProblem& problem() const;
  /// Blocks kept of those visible, of a head; 1 where none is.
  double kept_fraction() const;

  struct Impl;
  explicit BlockPruner(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof::cuda
