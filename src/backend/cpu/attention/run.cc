#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/position_bias.h"

namespace stof {
namespace {

/// Of a [batch, head, row, ...] view.
cpu::Operand operand_of(const TensorView& tensor) {
  return {tensor.data, tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

}  // namespace

void cpu::run_attention_with(const AttentionPlan& plan, const AttentionTensors& tensors,
                             const RunOptions& options, CpuIsa isa) {
  const AttentionProblem& problem = plan.problem();
  check_tensors(problem, dense_shapes(problem), tensors);
  LaunchSequence sequence;
  sequence.plan = &plan.impl();
  sequence.q = operand_of(tensors.q);
  sequence.k = operand_of(tensors.k);
  sequence.v = operand_of(tensors.v);
  sequence.out = operand_of(tensors.out);
  if (problem.return_lse) sequence.lse = operand_of(tensors.lse);
  if (problem.bias) {
    const TensorView bias = expand_bias(problem, tensors.bias);
    sequence.bias = static_cast<const float*>(bias.data);
    for (int i = 0; i < 4; ++i) sequence.bias_strides[i] = bias.strides[i];
  }
  std::vector<float> spread;
  if (problem.position_bias.num_buckets > 0 && problem.seq_q > 0 && problem.seq_kv > 0) {
    const Distances distances = distances_of(problem);
    spread = spread_position_bias(problem, tensors.position_bias, distances);
    set_position_bias(spread, distances, &sequence);
  }
  if (problem.alibi) {
    sequence.alibi_slopes = static_cast<const float*>(tensors.alibi_slopes.data);
    sequence.alibi_stride = tensors.alibi_slopes.strides[0];
  }
  if (problem.sink) {
    sequence.sink = static_cast<const float*>(tensors.sink.data);
    sequence.sink_stride = tensors.sink.strides[0];
  }
  sequence.score_tables = &tensors.score_tables;
  launch_attention({sequence}, options, isa);
}

void run_attention(const AttentionPlan& plan, const AttentionTensors& tensors,
                   const RunOptions& options) {
  cpu::run_attention_with(plan, tensors, options, cpu::selected_isa());
}

}  // namespace stof
