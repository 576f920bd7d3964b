#pragma once
// The kernel configurations offered for a problem.

#include <vector>

#include "codegen/attention.h"
#include "stof/attention.h"

namespace stof::cuda {

/// shared_heads: all heads of a batch entry have one mask, so that they can be packed.
std::vector<codegen::AttentionConfig> sm90_configs(const AttentionProblem& problem,
                                                       bool shared_heads);

}  // namespace stof::cuda
