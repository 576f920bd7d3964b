#include "backend/cuda/attention/batch_attention.h"

#include <algorithm>

namespace stof::cuda {
namespace {

/// Whether all sequences have the same number of rows, at least one.
bool is_even(const std::vector<std::int64_t>& offsets) {
  const std::int64_t length = offsets[1] - offsets[0];
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] - offsets[i - 1] != length) return false;
  return length > 0;
}

/// A packed [rows, heads, ...] view as [sequences, heads, rows of one, ...].
template <class View>
View apart(View tensor, std::int64_t sequences, std::int64_t length) {
  const std::int64_t row = tensor.strides[0];
  tensor.shape = {sequences, tensor.shape[1], length, tensor.shape[2]};
  tensor.strides = {length * row, tensor.strides[1], row, tensor.strides[2]};
  return tensor;
}

}  // namespace

std::variant<AttentionPlan, VarlenPlan> BatchAttention::build(
    const AttentionProblem& problem, const mask::Mask& mask,
    const std::vector<std::int64_t>& offsets, int device) {
  if (!is_even(offsets)) return VarlenPlan::build(problem, mask, offsets, offsets, "", device);
  AttentionProblem even = problem;
  even.batch = static_cast<std::int64_t>(offsets.size()) - 1;
  even.seq_q = even.seq_kv = offsets[1];
  return AttentionPlan::build(even, mask, "", device);
}

BatchAttention::BatchAttention(const AttentionProblem& problem, const mask::Mask& mask,
                               const std::vector<std::int64_t>& offsets, int device)
    : plan_(build(problem, mask, offsets, device)) {}

void BatchAttention::run(const AttentionTensors& tensors, void* stream) const {
  const auto* const even = std::get_if<AttentionPlan>(&plan_);
  if (even == nullptr) return std::get<VarlenPlan>(plan_).run(tensors, stream);
  const AttentionProblem& problem = even->problem();
  AttentionTensors t = tensors;
  for (TensorView* view : {&t.q, &t.k, &t.v}) *view = apart(*view, problem.batch, problem.seq_q);
  t.out = apart(t.out, problem.batch, problem.seq_q);
  even->run(t, stream);
}

const PlanFacts& BatchAttention::facts() const {
  return std::visit([](const auto& plan) -> const PlanFacts& { return plan.facts(); }, plan_);
}

}  // namespace stof::cuda
