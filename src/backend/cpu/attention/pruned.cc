#include "backend/cpu/attention/pruned.h"

#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/attention/problem.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

thread_local const mask::PruneOptions* prune_options = nullptr;

/// Rows [begin, end) of a packed [rows, heads, dim] view as [1, heads, end - begin, dim].
template <class View>
View sequence_view(const View& packed, std::int64_t begin, std::int64_t end) {
  View view = packed;
  const std::int64_t offset =
      begin * packed.strides[0] * static_cast<std::int64_t>(dtype_bytes(packed.dtype));
  if constexpr (std::is_same_v<View, MutableTensorView>)
    view.data = static_cast<std::byte*>(packed.data) + offset;
  else
    view.data = static_cast<const std::byte*>(packed.data) + offset;
  view.shape = {1, packed.shape[1], end - begin, packed.shape[2]};
  view.strides = {0, packed.strides[1], packed.strides[0], packed.strides[2]};
  return view;
}

}  // namespace

PruneScope::PruneScope(const mask::PruneOptions* options) : before_(prune_options) {
  prune_options = options;
}

PruneScope::~PruneScope() { prune_options = before_; }

const mask::PruneOptions* PruneScope::current() { return prune_options; }

void run_pruned_attention(const VarlenPlan& plan, const AttentionTensors& tensors,
                          const mask::PruneOptions& options, const RunOptions& run) {
  const VarlenPlan::Impl& impl = plan.impl();
  STOF_CHECK(tensors.q.dtype == DType::kFloat32, kUnsupported,
             "prune: expected float32 queries and keys, got {}", to_string(tensors.q.dtype));
  STOF_CHECK(!impl.problem.return_lse, kUnsupported, "prune: expected no LSE of packed sequences");
  for (std::size_t i = 0; i < impl.part_of.size(); ++i) {
    const AttentionPlan& whole = plan.sequence(static_cast<std::int64_t>(i));
    const AttentionProblem& problem = whole.problem();
    if (problem.seq_q == 0) continue;
    AttentionTensors own = tensors;
    own.q = sequence_view(tensors.q, impl.cu_seqlens_q[i], impl.cu_seqlens_q[i + 1]);
    own.out = sequence_view(tensors.out, impl.cu_seqlens_q[i], impl.cu_seqlens_q[i + 1]);
    own.k = sequence_view(tensors.k, impl.cu_seqlens_kv[i], impl.cu_seqlens_kv[i + 1]);
    own.v = sequence_view(tensors.v, impl.cu_seqlens_kv[i], impl.cu_seqlens_kv[i + 1]);
    if (problem.seq_kv == 0) {
      run_attention(whole, own, run);
      continue;
    }
    mask::PruneInput input;
    input.q = own.q;
    input.k = own.k;
    input.scale = scale_of(problem);
    input.base = whole.mask();
    input.alignment = problem.alignment;
    const mask::PrunedMask pruned = mask::prune(input, options.pruner, run.num_threads);
    if (options.on_pruned) options.on_pruned(pruned);
    run_attention(plan_attention(problem, pruned.mask), own, run);
  }
}

}  // namespace stof::cpu
