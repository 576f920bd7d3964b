#pragma once
// Attention that keeps two of every four neighbouring keys, as one launch of a block-wise kernel
// with 2:4 sparse products (kernels/attention/sm80_sparse).

#include <string>
#include <vector>

#include "backend/cuda/attention/blockwise_pass.h"
#include "backend/cuda/attention/config_choice.h"
#include "stof/cuda_attention.h"
#include "stof/mask.h"

namespace stof::cuda {

/// The kernels offered. Throws Unsupported naming the field that they cannot honour.
std::vector<codegen::AttentionConfig> two_of_four_configs(const AttentionProblem& problem,
                                                          bool shared_heads,
                                                          const KernelTarget& target);

/// Fills facts but for build_ms. `kernel`: a name, or empty for the cheapest. Throws Unsupported as
/// above, InvalidArgument naming the kernels there are.
DeviceBlockwise two_of_four_pass(const AttentionProblem& problem, const mask::Mask& mask,
                                 const std::string& kernel, int alignment, const Device& device,
                                 PlanFacts* facts);

}  // namespace stof::cuda
