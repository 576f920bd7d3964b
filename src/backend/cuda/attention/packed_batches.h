#pragma once
// Batches of packed sequences under one mask: each length is planned when it first comes, and a
// batch strings the lists of its lengths together, which takes microseconds.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cuda/attention/cost_model.h"
#include "backend/cuda/attention/device_plan.h"
#include "stof/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

/// A batch for the kernel that the model predicts the least time for.
struct PackedBatch {
  std::size_t kernel = 0;  ///< into PackedBatches::configs()
  double predicted_us = 0;
  DevicePlan plan;
  std::vector<Sequence> sequences;
};

/// Host only. Not safe from several threads.
class PackedBatches {
 public:
  /// Batch and lengths of the problem are not read; the mask has one batch entry. Throws
  /// Unsupported naming why no kernel can run the problem.
  PackedBatches(const AttentionProblem& problem, const mask::Mask& mask,
                const KernelTarget& target);

  const std::vector<codegen::AttentionConfig>& configs() const { return configs_; }

  /// Sequence i owns rows offsets[i] .. offsets[i+1] of queries and keys.
  PackedBatch batch_of(const std::vector<std::int64_t>& offsets);

 private:
  /// A sequence of one length, and what each kernel has to do for it.
  struct Length {
    AttentionProblem problem;
    std::shared_ptr<const mask::BlockMask> blocks;
    std::vector<Workload> works;
    std::vector<std::optional<DevicePlan>> plans;
  };

  Length& length_of(std::int64_t rows);
  const DevicePlan& plan_of(Length& length, std::size_t kernel) const;

  AttentionProblem problem_;
  mask::Mask mask_;
  KernelTarget target_;
  std::vector<codegen::AttentionConfig> configs_;
  std::vector<UnitCosts> costs_;
  std::map<std::int64_t, Length> lengths_;
};

}  // namespace stof::cuda
