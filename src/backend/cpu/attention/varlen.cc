// Packed sequences: one plan per distinct pair of lengths (or per sequence, where the mask differs
// between batch entries), one queue over all of them.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/plan_impl.h"
#include "core/check.h"
#include "core/hash.h"

namespace stof {
namespace {

/// Of a packed [row, head, ...] view, from row `first` on.
cpu::Operand packed_operand(const TensorView& tensor, std::int64_t first) {
  const std::int64_t bytes = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  const std::int64_t offset = first * tensor.strides[0] * bytes;
  return {static_cast<const char*>(tensor.data) + offset, 0, tensor.strides[1], tensor.strides[0]};
}

}  // namespace

const AttentionProblem& VarlenPlan::problem() const { return impl_->problem; }

std::int64_t VarlenPlan::num_sequences() const {
  return static_cast<std::int64_t>(impl_->part_of.size());
}

const AttentionPlan& VarlenPlan::sequence(std::int64_t i) const {
  STOF_CHECK(i >= 0 && i < num_sequences(), kInvalidArgument,
             "varlen plan: expected a sequence from 0 to {}, got {}", num_sequences() - 1, i);
  return impl_->plans[impl_->part_of[static_cast<std::size_t>(i)]];
}

void VarlenPlan::validate() const {
  for (const AttentionPlan& plan : impl_->plans) plan.validate();
}

std::string VarlenPlan::describe() const {
  return fmt::format("{}; {} packed sequences of {} queries and {} keys in all, {} plans",
                     impl_->problem.describe(), num_sequences(), impl_->cu_seqlens_q.back(),
                     impl_->cu_seqlens_kv.back(), impl_->plans.size());
}

std::string VarlenPlan::to_json() const {
  nlohmann::ordered_json json = {{"cu_seqlens_q", impl_->cu_seqlens_q},
                                 {"cu_seqlens_kv", impl_->cu_seqlens_kv},
                                 {"plan_of", impl_->part_of}};
  nlohmann::ordered_json& plans = json["plans"] = nlohmann::ordered_json::array();
  for (const AttentionPlan& plan : impl_->plans)
    plans.push_back(nlohmann::ordered_json::parse(plan.to_json()));
  json["fingerprint"] = fingerprint().hex();
  return json.dump();
}

Fingerprint VarlenPlan::fingerprint() const {
  Hasher hasher;
  hasher.add("stof.varlen_plan.1").add(num_sequences());
  for (std::size_t i = 0; i < impl_->part_of.size(); ++i) {
    hasher.add(impl_->cu_seqlens_q[i + 1]).add(impl_->cu_seqlens_kv[i + 1]);
    hasher.add(static_cast<std::int64_t>(impl_->part_of[i]));
  }
  for (const AttentionPlan& plan : impl_->plans) hasher.add(plan.fingerprint());
  return hasher.finish();
}

VarlenPlan plan_varlen_attention(const AttentionProblem& problem, const mask::Mask& mask,
                                 const std::vector<std::int64_t>& cu_seqlens_q,
                                 const std::vector<std::int64_t>& cu_seqlens_kv) {
  auto impl = std::make_shared<VarlenPlan::Impl>();
  static_cast<cpu::PackedSequences&>(*impl) =
      cpu::pack_sequences(problem, mask, cu_seqlens_q, cu_seqlens_kv);
  for (const auto& part : impl->parts)
    impl->plans.push_back(plan_attention(part.problem, part.mask));
  return VarlenPlan(std::move(impl));
}

void run_varlen_attention(const VarlenPlan& plan, const AttentionTensors& tensors,
                          const RunOptions& options) {
  const VarlenPlan::Impl& impl = plan.impl();
  const AttentionProblem& problem = impl.problem;
  cpu::check_tensors(problem, impl.shapes(), tensors);
  // One row of values per head for all sequences: distances between the longest ones, of either
  // alignment.
  std::vector<float> spread;
  cpu::Distances distances;
  if (problem.position_bias.num_buckets > 0) {
    const std::int64_t longest = std::max(problem.seq_q, problem.seq_kv);
    distances = {-longest, 2 * longest + 1};
    spread = cpu::spread_position_bias(problem, tensors.position_bias, distances);
  }
  std::vector<cpu::LaunchSequence> sequences;
  for (std::size_t i = 0; i < impl.part_of.size(); ++i) {
    const std::int64_t first_q = impl.cu_seqlens_q[i], first_kv = impl.cu_seqlens_kv[i];
    cpu::LaunchSequence sequence;
    sequence.plan = &impl.plans[impl.part_of[i]].impl();
    sequence.q = packed_operand(tensors.q, first_q);
    sequence.k = packed_operand(tensors.k, first_kv);
    sequence.v = packed_operand(tensors.v, first_kv);
    sequence.out = packed_operand(tensors.out, first_q);
    if (problem.return_lse)
      sequence.lse = {
          static_cast<const float*>(tensors.lse.data) + first_q * tensors.lse.strides[1], 0,
          tensors.lse.strides[0], tensors.lse.strides[1]};
    if (!spread.empty()) cpu::set_position_bias(spread, distances, &sequence);
    if (problem.alibi) {
      sequence.alibi_slopes = static_cast<const float*>(tensors.alibi_slopes.data);
      sequence.alibi_stride = tensors.alibi_slopes.strides[0];
    }
    if (problem.sink) {
      sequence.sink = static_cast<const float*>(tensors.sink.data);
      sequence.sink_stride = tensors.sink.strides[0];
    }
    sequence.score_tables = &tensors.score_tables;
    sequence.first_b = static_cast<std::int64_t>(i);
    sequences.push_back(sequence);
  }
  cpu::launch_attention(sequences, options, cpu::selected_isa());
}

}  // namespace stof
