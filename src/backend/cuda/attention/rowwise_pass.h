#pragma once
// Running a problem by the row-wise kernel: its configurations, their cost, the launch.

#include <memory>
#include <vector>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/rowwise_lists.h"
#include "backend/cuda/device.h"
#include "codegen/rowwise.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {

/// One way to run the problem.
struct RowwisePass {
  codegen::RowwiseConfig config;
  std::shared_ptr<const RowwiseLists> lists;
  double predicted_us = 0;
};

/// Why the kernel cannot run the problem on the target; empty when it can.
std::string rowwise_infeasible(const AttentionProblem& problem, const KernelTarget& target);

/// The ways worth a look beside one that takes `best_us`; none where full tiles alone would take
/// longer or the lists grow beyond a short sequence's.
std::vector<RowwisePass> rowwise_passes(const AttentionProblem& problem,
                                        const mask::BlockMask& mask, const KernelTarget& target,
                                        double best_us);

/// A pass with its lists in device memory and its kernel loaded.
class DeviceRowwise {
 public:
  /// Adds to `facts` what the pass computes and holds.
  DeviceRowwise(const RowwisePass& pass, const Device& device, PlanFacts* facts);
  /// Tensors are checked but for the alignment of q, k and v.
  void launch(const AttentionProblem& problem, const AttentionTensors& tensors,
              CUstream stream) const;

 private:
  codegen::RowwiseConfig config_;
  const Kernel* kernel_ = nullptr;
  std::int64_t num_items_ = 0;
  DeviceBuffer items_, chunks_, columns_, bits_;
};

}  // namespace stof::cuda
