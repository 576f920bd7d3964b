#pragma once
// Inside of AttentionPlan and VarlenPlan.

#include <vector>

#include "backend/cpu/attention/packed.h"
#include "expr/program.h"
#include "stof/attention.h"

namespace stof {

/// A head of a pattern: every (batch, head) belongs to exactly one pattern.
struct BatchHead {
  std::int64_t b, h;
};

struct AttentionPlan::Impl {
  AttentionProblem problem;
  mask::Mask mask;  ///< bound
  plan::MaskPlan mask_plan;
  std::vector<std::vector<BatchHead>> heads_of;    ///< [num_patterns]
  std::shared_ptr<const expr::Program> score_mod;  ///< null: none
};

struct VarlenPlan::Impl : cpu::PackedSequences {
  std::vector<AttentionPlan> plans;  ///< of each part
};

namespace cpu {

/// Plans with tiles and splits of the caller's choice.
AttentionPlan plan_attention_with(const AttentionProblem& problem, const mask::Mask& mask,
                                  const plan::PlanConfig& config);

/// The tiles that run fastest on the CPU kernels.
plan::PlanConfig choose_config(const AttentionProblem& problem);

}  // namespace cpu
}  // namespace stof
