// Packed sequences: one plan per distinct pair of lengths (or per sequence, where the mask differs
// between batch entries), one queue over all of them.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/cpu/attention/check.h"
#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/plan_impl.h"
#include "core/check.h"
#include "core/hash.h"

namespace stof {
namespace {

using Lengths = std::vector<std::int64_t>;

void check_cumulative(const char* name, const Lengths& cumulative) {
  STOF_CHECK(cumulative.size() >= 2, kInvalidArgument,
             "{}: expected at least 2 entries (one more than there are sequences), got {}", name,
             cumulative.size());
  STOF_CHECK(cumulative.front() == 0, kInvalidArgument, "{}[0]: expected 0, got {}", name,
             cumulative.front());
  for (std::size_t i = 1; i < cumulative.size(); ++i)
    STOF_CHECK(cumulative[i] >= cumulative[i - 1], kInvalidArgument,
               "{}[{}]: expected at least {} (lengths ascend), got {}", name, i, cumulative[i - 1],
               cumulative[i]);
}

std::int64_t longest(const Lengths& cumulative) {
  std::int64_t length = 0;
  for (std::size_t i = 1; i < cumulative.size(); ++i)
    length = std::max(length, cumulative[i] - cumulative[i - 1]);
  return length;
}

/// Of a packed [row, head, ...] view, from row `first` on.
cpu::Operand packed_operand(const TensorView& tensor, std::int64_t first) {
  const std::int64_t bytes = static_cast<std::int64_t>(dtype_bytes(tensor.dtype));
  const std::int64_t offset = first * tensor.strides[0] * bytes;
  return {static_cast<const char*>(tensor.data) + offset, 0, tensor.strides[1], tensor.strides[0]};
}

}  // namespace

const AttentionProblem& VarlenPlan::problem() const { return impl_->problem; }

std::int64_t VarlenPlan::num_sequences() const {
  return static_cast<std::int64_t>(impl_->plan_of.size());
}

const AttentionPlan& VarlenPlan::sequence(std::int64_t i) const {
  STOF_CHECK(i >= 0 && i < num_sequences(), kInvalidArgument,
             "varlen plan: expected a sequence from 0 to {}, got {}", num_sequences() - 1, i);
  return impl_->plans[impl_->plan_of[static_cast<std::size_t>(i)]];
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
                                 {"plan_of", impl_->plan_of}};
  nlohmann::ordered_json& plans = json["plans"] = nlohmann::ordered_json::array();
  for (const AttentionPlan& plan : impl_->plans)
    plans.push_back(nlohmann::ordered_json::parse(plan.to_json()));
  json["fingerprint"] = fingerprint().hex();
  return json.dump();
}

Fingerprint VarlenPlan::fingerprint() const {
  Hasher hasher;
  hasher.add("stof.varlen_plan.1").add(num_sequences());
  for (std::size_t i = 0; i < impl_->plan_of.size(); ++i) {
    hasher.add(impl_->cu_seqlens_q[i + 1]).add(impl_->cu_seqlens_kv[i + 1]);
    hasher.add(static_cast<std::int64_t>(impl_->plan_of[i]));
  }
  for (const AttentionPlan& plan : impl_->plans) hasher.add(plan.fingerprint());
  return hasher.finish();
}

VarlenPlan plan_varlen_attention(const AttentionProblem& problem, const mask::Mask& mask,
                                 const Lengths& cu_seqlens_q, const Lengths& cu_seqlens_kv) {
  check_cumulative("cu_seqlens_q", cu_seqlens_q);
  check_cumulative("cu_seqlens_kv", cu_seqlens_kv);
  STOF_CHECK(cu_seqlens_q.size() == cu_seqlens_kv.size(), kInvalidArgument,
             "cu_seqlens_kv: expected {} entries as in cu_seqlens_q, got {}", cu_seqlens_q.size(),
             cu_seqlens_kv.size());
  STOF_CHECK(!problem.bias, kUnsupported,
             "varlen attention has no bias: its extents are those of one sequence; run the "
             "sequences one by one, or pad them to a batch");
  auto impl = std::make_shared<VarlenPlan::Impl>();
  impl->problem = problem;
  impl->problem.batch = static_cast<std::int64_t>(cu_seqlens_q.size()) - 1;
  impl->problem.seq_q = longest(cu_seqlens_q);
  impl->problem.seq_kv = longest(cu_seqlens_kv);
  impl->problem.validate();
  impl->cu_seqlens_q = cu_seqlens_q;
  impl->cu_seqlens_kv = cu_seqlens_kv;

  STOF_CHECK(mask.batch_extent() <= 1 || mask.batch_extent() == impl->problem.batch,
             kInvalidArgument, "mask: expected a batch extent of 1 or {} (the sequences), got {}",
             impl->problem.batch, mask.batch_extent());
  const bool same_for_all = mask.batch_extent() == 1;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> plan_of_lengths;
  for (std::size_t i = 0; i + 1 < cu_seqlens_q.size(); ++i) {
    AttentionProblem one = impl->problem;
    one.batch = 1;
    one.seq_q = cu_seqlens_q[i + 1] - cu_seqlens_q[i];
    one.seq_kv = cu_seqlens_kv[i + 1] - cu_seqlens_kv[i];
    const auto [place, is_new] =
        plan_of_lengths.try_emplace({one.seq_q, one.seq_kv}, impl->plans.size());
    if (same_for_all && !is_new) {
      impl->plan_of.push_back(place->second);
      continue;
    }
    impl->plan_of.push_back(impl->plans.size());
    if (same_for_all) {
      impl->plans.push_back(plan_attention(one, mask));
      continue;
    }
    impl->plans.push_back(
        plan_attention(one, mask::batch_entry(mask, static_cast<std::int64_t>(i))));
  }
  return VarlenPlan(std::move(impl));
}

void run_varlen_attention(const VarlenPlan& plan, const AttentionTensors& tensors,
                          const RunOptions& options) {
  const VarlenPlan::Impl& impl = plan.impl();
  const AttentionProblem& problem = impl.problem;
  const std::int64_t total_q = impl.cu_seqlens_q.back(), total_kv = impl.cu_seqlens_kv.back();
  cpu::check_tensors(problem,
                     {{total_q, problem.num_heads_q, problem.head_dim_qk},
                      {total_kv, problem.num_heads_kv, problem.head_dim_qk},
                      {total_kv, problem.num_heads_kv, problem.head_dim_v},
                      {total_q, problem.num_heads_q, problem.head_dim_v},
                      {problem.num_heads_q, total_q}},
                     tensors);
  std::vector<cpu::LaunchSequence> sequences;
  for (std::size_t i = 0; i < impl.plan_of.size(); ++i) {
    const std::int64_t first_q = impl.cu_seqlens_q[i], first_kv = impl.cu_seqlens_kv[i];
    cpu::LaunchSequence sequence;
    sequence.plan = &impl.plans[impl.plan_of[i]].impl();
    sequence.q = packed_operand(tensors.q, first_q);
    sequence.k = packed_operand(tensors.k, first_kv);
    sequence.v = packed_operand(tensors.v, first_kv);
    sequence.out = packed_operand(tensors.out, first_q);
    if (problem.return_lse)
      sequence.lse = {
          static_cast<const float*>(tensors.lse.data) + first_q * tensors.lse.strides[1], 0,
          tensors.lse.strides[0], tensors.lse.strides[1]};
    if (problem.alibi) {
      sequence.alibi_slopes = static_cast<const float*>(tensors.alibi_slopes.data);
      sequence.alibi_stride = tensors.alibi_slopes.strides[0];
    }
    if (problem.sink) {
      sequence.sink = static_cast<const float*>(tensors.sink.data);
      sequence.sink_stride = tensors.sink.strides[0];
    }
    sequences.push_back(sequence);
  }
  cpu::launch_attention(sequences, options, cpu::selected_isa());
}

}  // namespace stof
