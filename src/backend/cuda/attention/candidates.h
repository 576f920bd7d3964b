#pragma once
// The ways to run a masked attention problem: tilings, token orders, one or two passes.

#include <string>
#include <vector>

#include "codegen/attention.h"
#include "stof/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

/// One launch.
struct Pass {
  codegen::AttentionConfig config;
  std::shared_ptr<const mask::BlockMask> blocks;  ///< in residue order of `step`
  std::int64_t step = 1;
  double predicted_us = 0;
};

/// Passes over disjoint parts of the mask; the second merges into the first.
struct Candidate {
  std::vector<Pass> passes;
  double predicted_us() const;
  /// "sm90_... step2" or "sm90_... + sm90_... step128"
  std::string name() const;
};

/// Every feasible candidate, cheapest prediction first.
std::vector<Candidate> enumerate_candidates(const AttentionProblem& problem, const mask::Mask& mask,
                                            int num_sms);

}  // namespace stof::cuda
