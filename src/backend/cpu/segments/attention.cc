// Attention over the sequences of the batch at hand.

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/attention/pruned.h"
#include "backend/cpu/segments/operands.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

using graph::Graph;

class Attention final : public SegmentRunner {
 public:
  /// `cached`: keys and values are rows of a cache.
  Attention(const AttentionTensors& tensors, bool cached, const AttentionSlot* slot)
      : tensors_(tensors), cached_(cached), slot_(slot) {}

  void run(std::int64_t rows) const override {
    STOF_ASSERT(slot_->plan != nullptr && (slot_->pages != nullptr) == cached_);
    STOF_ASSERT(slot_->plan->impl().cu_seqlens_q.back() == rows);
    AttentionTensors tensors = tensors_;
    tensors.q.shape[0] = tensors.out.shape[0] = rows;
    if (cached_) {
      take_rows(*slot_->pages, &tensors);
    } else {
      tensors.k.shape[0] = tensors.v.shape[0] = rows;
    }
    const RunOptions options{omp_get_max_threads()};
    if (const mask::PruneOptions* pruning = PruneScope::current())
      run_pruned_attention(*slot_->plan, tensors, *pruning, options);
    else
      run_varlen_attention(*slot_->plan, tensors, options);
  }

 private:
  /// Of the first key, where the keys of all sequences lie one behind the other.
  static std::optional<std::int64_t> first_row(const graph::CachePages& pages) {
    std::optional<std::int64_t> first, next;
    for (std::size_t i = 0; i < pages.lengths.size(); ++i) {
      if (pages.lengths[i] == 0) continue;
      const std::optional<std::int64_t> here = pages.first_row(i);
      if (!here || (next && *next != *here)) return std::nullopt;
      if (!first) first = here;
      next = *here + pages.lengths[i];
    }
    return first;
  }

  /// The sequences' keys one behind the other: where they lie, if they do, else copied.
  void take_rows(const graph::CachePages& pages, AttentionTensors* tensors) const {
    const std::int64_t stride = tensors->k.strides[0];
    const std::optional<std::int64_t> first = first_row(pages);
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; !first && i < pages.lengths.size(); ++i)
      for (std::int64_t key = 0; key < pages.lengths[i]; ++key) rows.push_back(pages.row(i, key));
    const std::int64_t count =
        std::accumulate(pages.lengths.begin(), pages.lengths.end(), std::int64_t{0});
    for (TensorView* view : {&tensors->k, &tensors->v}) {
      const auto* const from = static_cast<const float*>(view->data);
      view->shape[0] = count;
      if (first) {
        view->data = from + *first * stride;
        continue;
      }
      const std::int64_t width = view->shape[1] * view->shape[2];
      std::vector<float>& copy = view == &tensors->k ? keys_ : values_;
      copy.resize(static_cast<std::size_t>(count * width));
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < count; ++i)
        std::copy_n(from + rows[static_cast<std::size_t>(i)] * stride, width,
                    copy.data() + i * width);
      view->data = copy.data();
      view->strides = {width, view->shape[2], 1};
    }
  }

  AttentionTensors tensors_;  ///< of all rows, padding included
  bool cached_;
  const AttentionSlot* slot_;
  mutable std::vector<float> keys_, values_;  ///< run() is for one thread at a time
};

}  // namespace

std::unique_ptr<SegmentRunner> make_attention(const Graph& graph, const fusion::Segment& segment,
                                              const SegmentBindings& bindings) {
  const graph::Attributes& attributes = graph.op(segment.first).attributes;
  STOF_CHECK(bindings.attention != nullptr && attributes.mask < bindings.num_masks,
             kInvalidArgument, "bindings: expected the batch's sequences under mask {} for {}",
             attributes.mask, describe(graph, segment));
  const auto packed = [&](graph::ValueId id, std::int64_t heads) {
    const Matrix matrix = matrix_of(graph, bindings, id);
    const Dims& base = graph.value(graph.storage(id)).shape;
    return MutableTensorView(matrix.data, DType::kFloat32,
                             {matrix.rows, heads, attributes.head_dim},
                             {base[base.rank() - 1], attributes.head_dim, 1});
  };
  AttentionTensors tensors;
  tensors.q = packed(segment.inputs[0], attributes.heads);
  tensors.k = packed(segment.inputs[1], attributes.kv_heads);
  tensors.v = packed(segment.inputs[2], attributes.kv_heads);
  tensors.out = packed(segment.outputs[0], attributes.heads);
  if (segment.inputs.size() > 3) {
    const Dims& table = graph.value(segment.inputs[3]).shape;
    tensors.position_bias = {address_of(graph, bindings, segment.inputs[3]), DType::kFloat32,
                             table};
  }
  return std::make_unique<Attention>(tensors, graph.in_state(segment.inputs[1]),
                                     bindings.attention + attributes.mask);
}

}  // namespace stof::cpu
