#pragma once
// Inside of AttentionPlan and VarlenPlan.

#include <map>
#include <utility>
#include <vector>

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
  std::vector<std::vector<BatchHead>> heads_of;  ///< [num_patterns]
};

struct VarlenPlan::Impl {
  AttentionProblem problem;  ///< batch = sequences, seq_q and seq_kv = the longest
  std::vector<std::int64_t> cu_seqlens_q, cu_seqlens_kv;
  std::vector<AttentionPlan> plans;  ///< distinct ones, batch 1 each
  std::vector<std::size_t> plan_of;  ///< [sequences]
};

namespace cpu {

/// Plans with tiles and splits of the caller's choice.
AttentionPlan plan_attention_with(const AttentionProblem& problem, const mask::Mask& mask,
                                  const plan::PlanConfig& config);

/// The tiles that run fastest on the CPU kernels.
plan::PlanConfig choose_config(const AttentionProblem& problem);

}  // namespace cpu
}  // namespace stof
