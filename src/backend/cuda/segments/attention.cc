// Attention over the packed sequences of the batch at hand.

#include "backend/cuda/segments/operands.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using fusion::Choice;
using fusion::Segment;
using graph::Graph;
using graph::ValueId;

std::vector<Choice> choices(const Graph& graph, const Segment& segment, const Device&) {
  if (segment.family != fusion::Family::kAttention) return {};
  const DType dtype = graph.value(segment.outputs[0]).dtype;
  if (dtype != DType::kFloat16 && dtype != DType::kBFloat16) return {};
  return {{kAttentionRunners.name, {}}};
}

class Attention final : public SegmentRunner {
 public:
  /// `cached`: keys and values are rows of a cache.
  Attention(const AttentionTensors& tensors, bool cached, const AttentionSlot* slot)
      : tensors_(tensors), cached_(cached), slot_(slot) {}

  void launch(CUstream stream) const override {
    if (cached_) {
      STOF_ASSERT((slot_->cached != nullptr) != (slot_->span != nullptr));
      if (slot_->span != nullptr) return slot_->span->run(tensors_, stream);
      return slot_->cached->run(tensors_, stream);
    }
    STOF_ASSERT((slot_->attention != nullptr) != (slot_->batch != nullptr));
    AttentionTensors tensors = tensors_;
    for (TensorView* view : {&tensors.q, &tensors.k, &tensors.v}) view->shape[0] = slot_->rows;
    tensors.out.shape[0] = slot_->rows;
    if (slot_->batch != nullptr)
      slot_->batch->run(tensors, stream);
    else
      slot_->attention->run(tensors, stream);
  }

 private:
  AttentionTensors tensors_;  ///< of all rows, padding included
  bool cached_;
  const AttentionSlot* slot_;
};

std::unique_ptr<SegmentRunner> make(const Graph& graph, const Segment& segment,
                                    const Choice& choice, const SegmentBindings& bindings,
                                    const Device&) {
  if (segment.family != fusion::Family::kAttention)
    refuse(graph, segment, choice, "it is no attention");
  const graph::Attributes& attributes = graph.op(segment.first).attributes;
  STOF_CHECK(bindings.attention != nullptr && attributes.mask < bindings.num_masks,
             kInvalidArgument, "bindings: expected the batch's sequences under mask {} for {}",
             attributes.mask, describe(graph, segment));
  const auto packed = [&](graph::ValueId id, std::int64_t heads) {
    const Matrix matrix = matrix_of(graph, bindings, id);
    const Dims& base = graph.value(graph.storage(id)).shape;
    return MutableTensorView(device_pointer(matrix.data), graph.value(id).dtype,
                             {matrix.rows, heads, attributes.head_dim},
                             {base[base.rank() - 1], attributes.head_dim, 1});
  };
  AttentionTensors tensors;
  tensors.q = packed(segment.inputs[0], attributes.heads);
  tensors.k = packed(segment.inputs[1], attributes.kv_heads);
  tensors.v = packed(segment.inputs[2], attributes.kv_heads);
  tensors.out = packed(segment.outputs[0], attributes.heads);
  if (segment.inputs.size() > 3) {
    const ValueId table = segment.inputs[3];
    tensors.position_bias = {device_pointer(bindings.addresses[static_cast<std::size_t>(table)]),
                             DType::kFloat32, graph.value(table).shape};
  }
  return std::make_unique<Attention>(tensors, graph.in_state(segment.inputs[1]),
                                     bindings.attention + attributes.mask);
}

}  // namespace

const RunnerFamily kAttentionRunners = {"attention", choices, make};

}  // namespace stof::cuda
