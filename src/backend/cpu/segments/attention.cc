// Attention over the sequences of the batch at hand.

#include <omp.h>

#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/segments/operands.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

using graph::Graph;

class Attention final : public SegmentRunner {
 public:
  Attention(const AttentionTensors& tensors, const AttentionSlot* slot)
      : tensors_(tensors), slot_(slot) {}

  void run(std::int64_t rows) const override {
    STOF_ASSERT(slot_->plan != nullptr);
    STOF_ASSERT(slot_->plan->impl().cu_seqlens_q.back() == rows);
    AttentionTensors tensors = tensors_;
    for (TensorView* view : {&tensors.q, &tensors.k, &tensors.v}) view->shape[0] = rows;
    tensors.out.shape[0] = rows;
    run_varlen_attention(*slot_->plan, tensors, {omp_get_max_threads()});
  }

 private:
  AttentionTensors tensors_;  ///< of all rows, padding included
  const AttentionSlot* slot_;
};

}  // namespace

std::unique_ptr<SegmentRunner> make_attention(const Graph& graph, const fusion::Segment& segment,
                                              const SegmentBindings& bindings) {
  STOF_CHECK(bindings.attention != nullptr, kInvalidArgument,
             "bindings: expected the batch's sequences for {}", describe(graph, segment));
  const graph::Attributes& attributes = graph.op(segment.first).attributes;
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
  return std::make_unique<Attention>(tensors, bindings.attention);
}

}  // namespace stof::cpu
