#pragma once
// Packed sequences on the GPU: the kernels that can run them, and what those kernels read.

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/attention/packed.h"
#include "backend/cuda/attention/config_choice.h"
#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/cost_model.h"
#include "backend/cuda/attention/device_plan.h"
#include "codegen/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

/// Block masks of the parts; null where a part has no queries or no keys.
using PackedBlocks = std::vector<std::shared_ptr<const mask::BlockMask>>;
PackedBlocks blocks_of_parts(const cpu::PackedSequences& packed);

/// The kernels that can run packed sequences of such a problem, whatever their lengths. Throws
/// Unsupported naming why none can.
std::vector<codegen::AttentionConfig> packed_configs(const AttentionProblem& problem,
                                                     bool shared_heads, const KernelTarget& target);

/// Adds `times` sequences' work for a kernel of these costs.
void add_work(const Workload& one, double times, const UnitCosts& costs, Workload* all);

/// Cheapest prediction first. Sequences run in natural order and in one pass. Throws Unsupported
/// naming why no kernel can.
std::vector<ConfigCandidate> packed_candidates(const cpu::PackedSequences& packed,
                                               const PackedBlocks& blocks,
                                               const KernelTarget& target);

/// Records of all sequences; a record's batch is the sequence's index.
DevicePlan build_packed_plan(const cpu::PackedSequences& packed, const PackedBlocks& blocks,
                             const codegen::AttentionConfig& config, int num_blocks);
std::vector<Sequence> sequences_of(const cpu::PackedSequences& packed);

/// A packed [rows, heads, ...] view as the kernels take it: [1, heads, rows, ...].
template <class View>
View unpacked_rows(View tensor) {
  tensor.shape = {1, tensor.shape[1], tensor.shape[0], tensor.shape[2]};
  tensor.strides = {0, tensor.strides[1], tensor.strides[0], tensor.strides[2]};
  return tensor;
}

}  // namespace stof::cuda
