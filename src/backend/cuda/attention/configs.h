#pragma once
// The kernel configurations offered for a problem.

#include <string>
#include <vector>

#include "codegen/attention.h"
#include "stof/attention.h"

namespace stof::cuda {

/// What decides which kernels run: the GPU, and how the operands will be aligned.
struct KernelTarget {
  int compute_capability = 90;  ///< major * 10 + minor
  int num_sms = 132;
  int alignment = 16;    ///< bytes that divide every address and stride of q, k, v and out
  std::string gpu = {};  ///< name, to find its calibration; empty: what is shipped

  /// Shared memory of an SM, and the most a block may ask for.
  int shared_per_sm() const;
  int shared_per_block() const { return shared_per_sm() - 1024; }
};

/// Why no kernel of a family can run the problem on the target; empty when one can.
std::string infeasible(codegen::KernelFamily family, const AttentionProblem& problem,
                       const KernelTarget& target);

/// Registers a thread of the Hopper kernel holds throughout: scores, weights, output and, where the
/// configuration says so, queries.
int sm90_held_registers(const codegen::AttentionConfig& config);

/// shared_heads: all heads of a batch entry have one mask, so that they can be packed.
std::vector<codegen::AttentionConfig> sm90_configs(const AttentionProblem& problem,
                                                   bool shared_heads);
std::vector<codegen::AttentionConfig> sm80_configs(const AttentionProblem& problem,
                                                   bool shared_heads, const KernelTarget& target);

}  // namespace stof::cuda
