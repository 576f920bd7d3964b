#pragma once
// One launch of a block-wise kernel, ready: the kernel, and a plan's lists in device memory.

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/device.h"
#include "codegen/attention.h"
#include "plan/grid_order.h"
#include "stof/attention.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {

/// A plan's lists in device memory.
struct DeviceLists {
  DeviceBuffer records, partial, runs, payloads, position_buckets;
  int num_records = 0;
  /// Other kernels write them between launches: no launch may read ahead.
  bool change = false;
};

class DeviceBlockwise {
 public:
  /// Adds to `facts` what the launch holds.
  DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step, DeviceLists lists,
                  const std::vector<SplitPart>& parts, const Device& device, PlanFacts* facts);
  /// The same of lists on the host but for the payloads, with the tiles it computes.
  DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step, const DevicePlan& plan,
                  DeviceBuffer payloads, const Device& device, PlanFacts* facts);
  /// The same with all on the host.
  DeviceBlockwise(const codegen::AttentionConfig& config, std::int64_t step, const DevicePlan& plan,
                  const Device& device, PlanFacts* facts);
  /// The same in grid order: the plan is that of each of `batch` entries.
  DeviceBlockwise(const codegen::AttentionConfig& config, const plan::GridOrder& grid,
                  std::int64_t batch, const DevicePlan& plan, const Device& device,
                  PlanFacts* facts);

  /// Another plan's lists in place of those it has, copied on `stream`, on which the launches
  /// follow; allocates only where they are longer. No record of the plan is part of a query tile.
  void replace(const DevicePlan& plan, CUstream stream);

  /// Persistent blocks that pop the queue, which the plan is made for.
  static int num_blocks(const codegen::AttentionConfig& config, const Device& device);

  /// Divides the addresses and strides, in bytes, of what `launch` takes.
  int alignment() const { return config_.load_bytes; }

  /// Views of [batch, heads, rows, head_dim], checked. For a packed batch: batch 1, all rows, and
  /// the address of the sequences (kernels/attention/records.cuh), else 0. `lse` may be 0.
  void launch(const AttentionProblem& problem, const AttentionTensors& tensors, CUdeviceptr lse,
              CUdeviceptr sequences, CUstream stream) const;

 private:
  codegen::AttentionConfig config_;
  std::int64_t step_;
  std::optional<plan::GridOrder> grid_;
  const Kernel* kernel_;
  DeviceLists lists_;
  DeviceBuffer queue_, parts_, workspace_, arrivals_;
  int most_blocks_, num_blocks_;
};

}  // namespace stof::cuda
