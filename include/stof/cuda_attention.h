#pragma once
// Masked attention on an NVIDIA GPU: plan once, run many times on any stream.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stof/attention.h"

namespace stof::cuda {

/// What the plan's kernel is and holds.
struct PlanFacts {
  std::string kernel;            ///< name with all parameters
  std::int64_t tiles = 0;        ///< key tiles computed, all heads
  std::size_t device_bytes = 0;  ///< lists, payloads and queue
  double build_ms = 0;           ///< host time from mask to device, compilation included
  double predicted_us = 0;       ///< by the analytical model
};

/// A way to run a problem and what the analytical model says of it, or a kernel that cannot.
struct CandidateFacts {
  std::string name;
  double predicted_us = 0;
  bool feasible = true;
  std::string reason;  ///< why it is never picked: not feasible, or only when named
};

/// What decides which kernels can run.
struct GpuModel {
  int compute_capability = 90;  ///< major * 10 + minor
  int num_sms = 132;            ///< 132: H100, H200
  int alignment = 16;           ///< see AttentionPlan::build
};

/// A problem with its mask planned and its kernel compiled for one GPU. Immutable; run() may be
/// called from several threads as long as they use different plans or the same stream.
class AttentionPlan {
 public:
  /// Builds for the kernel the model picks, or for one named as candidates() does. `alignment`:
  /// bytes that divide the addresses of q, k, v and out and their strides but the last; below 16
  /// slower kernels run. Throws NotFound without a GPU, Unsupported naming what no kernel can
  /// honour.
  static AttentionPlan build(const AttentionProblem& problem, const mask::Mask& mask,
                             const std::string& kernel = "", int device = 0, int alignment = 16);

  /// The same of a mask that the GPU made: bool [seq_q, seq_kv] or
  /// [batch|1, num_heads_q|1, seq_q|1, seq_kv] in device memory, any strides. The GPU reads it, on
  /// `stream` (a CUstream; null = default stream), and fills the plan's payloads; build_dense()
  /// waits for that, and the tensor may change afterwards. Block-wise kernels only, tokens in their
  /// order. Throws InvalidArgument naming the shape expected and the one got, Unsupported where
  /// heads with masks of their own need more than 64 MiB of scratch (2 bits for 64 x 16 pairs),
  /// else as build().
  static AttentionPlan build_dense(const AttentionProblem& problem, const TensorView& visible,
                                   void* stream, const std::string& kernel = "", int device = 0,
                                   int alignment = 16);

  /// As build(), but of what the mask shows a query sees only, of keys 4g .. 4g + 3, the two of the
  /// largest q k^T: mask::prune()'s "nm(2, 4)" with the scores as the kernel has them, accumulated
  /// in float32 (docs/pruning.md says where that can differ). P V runs on 2:4 sparse tensor cores.
  /// Head dimensions to 128. Throws Unsupported naming what else it cannot honour: softcap, ALiBi,
  /// biases, score_mod.
  static AttentionPlan build_two_of_four(const AttentionProblem& problem, const mask::Mask& mask,
                                         const std::string& kernel = "", int device = 0,
                                         int alignment = 16);

  /// What can run the problem, the model's pick first, and what cannot. Needs no GPU.
  static std::vector<CandidateFacts> candidates(const AttentionProblem& problem,
                                                const mask::Mask& mask, const GpuModel& gpu = {});

  /// Tensors are device memory with the problem's shapes, aligned as the plan was built
  /// for, with a last stride of 1 element; lse is contiguous. Asynchronous on `stream` (a CUstream;
  /// null = default stream); neither allocates nor synchronises, so it can be captured in a CUDA
  /// graph.
  void run(const AttentionTensors& tensors, void* stream) const;

  const AttentionProblem& problem() const;
  const PlanFacts& facts() const;

  struct Impl;
  explicit AttentionPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Packed sequences of unequal length ("varlen"), as plan_varlen_attention() has them: sequence i
/// owns rows cu_seqlens_q[i] .. cu_seqlens_q[i+1] of q and out, likewise for k and v, and is masked
/// with its own lengths. The lengths are part of the plan.
class VarlenPlan {
 public:
  /// As AttentionPlan::build(); the problem's batch and lengths are taken from the cumulative
  /// lengths. Throws what plan_varlen_attention() throws as well.
  static VarlenPlan build(const AttentionProblem& problem, const mask::Mask& mask,
                          const std::vector<std::int64_t>& cu_seqlens_q,
                          const std::vector<std::int64_t>& cu_seqlens_kv,
                          const std::string& kernel = "", int device = 0, int alignment = 16);

  /// What can run the sequences, the model's pick first. Needs no GPU.
  static std::vector<CandidateFacts> candidates(const AttentionProblem& problem,
                                                const mask::Mask& mask,
                                                const std::vector<std::int64_t>& cu_seqlens_q,
                                                const std::vector<std::int64_t>& cu_seqlens_kv,
                                                const GpuModel& gpu = {});

  /// Tensors as of run_varlen_attention(), in device memory; otherwise as AttentionPlan::run().
  void run(const AttentionTensors& tensors, void* stream) const;

  /// With batch = sequences, seq_q and seq_kv = the longest.
  const AttentionProblem& problem() const;
  const PlanFacts& facts() const;

  struct Impl;
  explicit VarlenPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof::cuda
