#pragma once
// Attention on an NVIDIA GPU over lists of key blocks that the GPU itself makes: the lists change
// from call to call, and the host never sees them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stof/cuda_attention.h"

namespace stof::cuda {

/// How tokens are divided into blocks. Query block i is rows i * block_q and on, key block j keys
/// j * block_kv and on; the last ones end with the sequence.
struct BlockListShape {
  std::int64_t block_q = 64;    ///< a multiple of 64
  std::int64_t block_kv = 64;   ///< a multiple of 64
  std::int64_t max_blocks = 0;  ///< most ids of a query block; 0: as many as there are key blocks
  bool per_kv_head = false;     ///< one list for all query heads of a key/value head, which may
                                ///< then share a block's keys and values
  /// A query sees no key after its own position, whatever the lists say: of the key block that
  /// holds it only the first ones. Needs square blocks of 64 or 128, no
  /// key_block_sizes, and lengths that leave the diagonal at their
  /// corners (bottom-right alignment: seq_kv - seq_q a multiple of the side).
  bool causal = false;
  double expected_share = 0.25;  ///< of key blocks in a list, in (0, 1]: for the choice of kernel
  /// How many keys of each key block exist, its first ones (tokens sorted into grid tiles and
  /// padded to whole blocks); what follows is never seen. Empty: all.
  std::vector<std::int64_t> key_block_sizes;

  std::int64_t num_list_heads(const AttentionProblem& problem) const;
  std::int64_t num_q_blocks(const AttentionProblem& problem) const;
  std::int64_t num_kv_blocks(const AttentionProblem& problem) const;
  /// Throws InvalidArgument or Unsupported naming the field, expected and got.
  void validate(const AttentionProblem& problem) const;
};

/// Which key blocks each query block sees, in device memory, any strides. Heads are query heads, or
/// with per_kv_head key/value heads. Batch and head extents may be 1, or have stride 0: shared.
struct BlockLists {
  TensorView counts;  ///< int32 [batch, heads, num_q_blocks]
  TensorView ids;     ///< int32 [batch, heads, num_q_blocks, up to max_blocks]; the first
                      ///< `count` of a row are read, in any order; one named twice counts once
};

/// An attention problem with block lists planned for one GPU. update() and run() allocate, compile
/// and synchronise nothing and can be captured in CUDA graphs. Calls of one plan belong on one
/// stream, or must be ordered by events.
class BlockListPlan {
 public:
  /// For the kernel the model picks, or one named as candidates() does; `alignment` as in
  /// AttentionPlan::build. Until the first update() nothing is visible. Throws NotFound without a
  /// GPU, Unsupported naming what no kernel can honour.
  static BlockListPlan build(const AttentionProblem& problem, const BlockListShape& shape,
                             const std::string& kernel = "", int device = 0, int alignment = 16);

  /// What can run the problem, the model's pick first. Needs no GPU.
  static std::vector<CandidateFacts> candidates(const AttentionProblem& problem,
                                                const BlockListShape& shape,
                                                const GpuModel& gpu = {});

  /// Makes the plan from the lists as they are when `stream` (a CUstream; null = default stream)
  /// comes to it; they may change once it is done. Ids that are no block, and what a count has
  /// beyond 0 .. the extent of ids, are left out, and remembered for check().
  void update(const BlockLists& lists, void* stream) const;

  /// As AttentionPlan::run, with the lists of the last update(). A query that sees nothing gives 0
  /// and LSE -inf.
  void run(const AttentionTensors& tensors, void* stream) const;

  /// Waits for `stream`. Throws InvalidArgument naming batch, head, query block and value of the
  /// first wrong entry since the last check().
  void check(void* stream) const;

  const AttentionProblem& problem() const;
  const BlockListShape& shape() const;
  const PlanFacts& facts() const;  ///< tiles: 0, the lists are the device's

  struct Impl;
  explicit BlockListPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof::cuda
