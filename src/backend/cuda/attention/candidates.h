#pragma once
// The ways to run a masked attention problem: tilings, token orders, one or two passes.

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/rowwise_pass.h"
#include "codegen/attention.h"
#include "plan/grid_order.h"
#include "stof/attention.h"
#include "stof/block_mask.h"

namespace stof::cuda {

/// One launch.
struct Pass {
  codegen::AttentionConfig config;
  std::shared_ptr<const mask::BlockMask> blocks;  ///< in residue order of `step`; null with `grid`
  std::int64_t step = 1;
  double predicted_us = 0;
  std::optional<plan::GridOrder> grid = {};
};

/// Passes over disjoint parts of the mask, of which the second merges into the first, or one by the
/// row-wise kernel.
struct Candidate {
  std::vector<Pass> passes;
  std::string by_name_only;            ///< why the model does not pick it; empty where it may
  std::optional<RowwisePass> rowwise;  ///< in place of passes
  double predicted_us() const;
  /// "sm90_... step2", "sm90_..._grid grid1x8x8" or "sm90_... + sm90_... step128"
  std::string name() const;
};

/// Every feasible candidate: first those the model picks among, cheapest prediction first, then,
/// unless they are not wanted, those that run when named.
std::vector<Candidate> enumerate_candidates(const AttentionProblem& problem, const mask::Mask& mask,
                                            const KernelTarget& target, bool by_name = true);

/// A family, or a way to use it that the mask would allow, that cannot run the problem.
struct InfeasibleFamily {
  std::string name;
  std::string reason;
};
std::vector<InfeasibleFamily> infeasible_families(const AttentionProblem& problem,
                                                  const mask::Mask& mask,
                                                  const KernelTarget& target);

}  // namespace stof::cuda
