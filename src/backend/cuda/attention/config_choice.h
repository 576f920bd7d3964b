#pragma once
// The choice among block-wise kernels where everything runs in natural order and in one pass.

#include <string>
#include <vector>

#include "backend/cuda/attention/configs.h"

namespace stof::cuda {

/// A kernel that can run the problem.
struct ConfigCandidate {
  codegen::AttentionConfig config;
  double predicted_us = 0;
};

/// The configurations of the fastest family that has some. Throws Unsupported naming `what` is to
/// run and why no kernel can.
std::vector<codegen::AttentionConfig> blockwise_configs(const AttentionProblem& problem,
                                                        bool shared_heads,
                                                        const KernelTarget& target,
                                                        const std::string& what);

/// Cheapest prediction first.
void sort_candidates(std::vector<ConfigCandidate>* candidates);

/// The first, or the one named. Throws InvalidArgument naming those there are.
const ConfigCandidate& choose_candidate(const std::vector<ConfigCandidate>& candidates,
                                        const std::string& kernel);

}  // namespace stof::cuda
