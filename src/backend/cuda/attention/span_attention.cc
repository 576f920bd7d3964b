#include "backend/cuda/attention/span_attention.h"

#include "core/check.h"

namespace stof::cuda {
namespace {

/// Rows `first` and on of a packed [rows, heads, head_dim] view as [1, heads, count, head_dim].
template <class View>
View span_of(View view, std::int64_t first, std::int64_t count) {
  const std::int64_t row = view.strides[0];
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(view.dtype));
  // Device memory: the address is all that is known of it.
  view.data = device_pointer(reinterpret_cast<CUdeviceptr>(view.data) +
                             static_cast<CUdeviceptr>(first * row * bytes));
  view.shape = {1, view.shape[1], count, view.shape[2]};
  view.strides = {count * row, view.strides[1], row, 1};
  return view;
}

}  // namespace

SpanAttention::SpanAttention(const AttentionProblem& problem, const mask::Mask& mask,
                             const std::vector<std::int64_t>& offsets,
                             const graph::CachePages& cache, const Device& device) {
  STOF_CHECK(mask.batch_extent() == 1, kUnsupported,
             "attention over a cache on a GPU: mask {}: expected one for all sequences, got one "
             "for each of {}",
             mask.describe(), mask.batch_extent());
  for (std::size_t i = 0; i < cache.lengths.size(); ++i) {
    const std::int64_t rows = offsets[i + 1] - offsets[i];
    if (rows == 0) continue;
    const std::optional<std::int64_t> first = cache.first_row(i);
    STOF_CHECK(first.has_value(), kUnsupported,
               "attention over a cache on a GPU: sequence {}: expected its pages one behind the "
               "other, since the decode kernel does not take the batch, got scattered ones",
               i);
    AttentionProblem one = problem;  // with its alignment
    one.batch = 1;
    one.seq_q = rows;
    one.seq_kv = cache.lengths[i];
    parts_.push_back(
        {AttentionPlan::build(one, mask, "", device.facts().ordinal), offsets[i], *first});
  }
}

void SpanAttention::run(const AttentionTensors& tensors, CUstream stream) const {
  for (const Part& part : parts_) {
    const AttentionProblem& problem = part.plan.problem();
    AttentionTensors t = tensors;
    t.q = span_of(tensors.q, part.first_row, problem.seq_q);
    t.out = span_of(tensors.out, part.first_row, problem.seq_q);
    t.k = span_of(tensors.k, part.first_key, problem.seq_kv);
    t.v = span_of(tensors.v, part.first_key, problem.seq_kv);
    part.plan.run(t, stream);
  }
}

}  // namespace stof::cuda
