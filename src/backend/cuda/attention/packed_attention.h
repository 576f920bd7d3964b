#pragma once
// Attention over batch after batch of packed sequences of any lengths, under one mask.

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/attention/blockwise_pass.h"
#include "backend/cuda/attention/packed_batches.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {

/// As VarlenPlan without LSE, for lengths that change from batch to batch. Kernels and lengths are
/// prepared when they first come; after that a batch allocates and compiles nothing, as long as its
/// lists are no longer than any before. Not safe from several threads.
class PackedAttention {
 public:
  /// As PackedBatches. Throws what VarlenPlan::build() throws.
  PackedAttention(const AttentionProblem& problem, const mask::Mask& mask, const Device& device);

  /// Sequence i owns rows offsets[i] .. offsets[i+1]. Its lists are copied on `stream`, on which
  /// run() follows; nothing is done where the batch before had the same offsets.
  void prepare(const std::vector<std::int64_t>& offsets, CUstream stream);

  /// q, k, v, out of all rows, as run_varlen_attention() takes them. Asynchronous.
  void run(const AttentionTensors& tensors, CUstream stream) const;

 private:
  AttentionProblem problem_;  ///< one batch entry of all rows
  Device device_;
  PackedBatches batches_;
  std::vector<std::optional<DeviceBlockwise>> passes_;  ///< by kernel
  DeviceBuffer sequences_;
  std::vector<std::int64_t> offsets_;
  PackedBatch batch_;  ///< what was copied last; pageable, so staged before the call returns
};

}  // namespace stof::cuda
