#pragma once
// The driver under run_attention() and run_varlen_attention(): items of one or many sequences,
// dearest first, over OpenMP threads.

#include <cstdint>
#include <vector>

#include "backend/cpu/attention/kernel.h"
#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/attention/position_bias.h"
#include "stof/attention.h"

namespace stof::cpu {

/// A tensor's address and its strides in elements by [batch, head, row].
struct Operand {
  const void* data = nullptr;
  std::int64_t b_stride = 0, h_stride = 0, row_stride = 0;
};

/// One sequence (or batch of equal ones) with its plan.
struct LaunchSequence {
  const AttentionPlan::Impl* plan = nullptr;
  Operand q, k, v;
  Operand out;                  ///< data is written
  Operand lse;                  ///< float32, data is null or written
  const float* bias = nullptr;  ///< [batch, heads, seq_q, seq_kv], of the bias or the position bias
  std::int64_t bias_strides[4] = {0, 0, 0, 0};
  const float* alibi_slopes = nullptr;
  std::int64_t alibi_stride = 0;
  const float* sink = nullptr;
  std::int64_t sink_stride = 0;
  const std::vector<TensorView>* score_tables = nullptr;  ///< with a score modification
  std::int64_t first_b = 0;  ///< batch index of entry 0, as score modifications see it
};

/// Reads spread_position_bias()'s values, which live as long as the launch, as the sequence's bias.
void set_position_bias(const std::vector<float>& spread, const Distances& distances,
                       LaunchSequence* sequence);

/// Runs every item of every sequence. Same bits for every number of threads.
void launch_attention(const std::vector<LaunchSequence>& sequences, const RunOptions& options,
                      CpuIsa isa);

/// run_attention() at a given vector level.
void run_attention_with(const AttentionPlan& plan, const AttentionTensors& tensors,
                        const RunOptions& options, CpuIsa isa);

}  // namespace stof::cpu
