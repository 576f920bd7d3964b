#include "backend/cpu/segments/segments.h"

#include "backend/cpu/segments/operands.h"
#include "core/check.h"

namespace stof::cpu {

using fusion::Choice;
using fusion::Family;
using graph::Graph;
using graph::ValueId;

std::shared_ptr<const PackedWeight> PackedWeights::of(const TensorView& weight,
                                                      PackedWeight::Layout layout) {
  const std::lock_guard lock(mutex_);
  STOF_CHECK(layout == PackedWeight::Layout::kPacked || !given_back_.contains(weight.data),
             kUnsupported,
             "weights: expected a product that takes them packed, since their own memory was given "
             "back, got one that takes them as they are");
  auto& packed = weights_[{weight.data, layout}];
  if (packed == nullptr) packed = std::make_shared<const PackedWeight>(weight, layout);
  return packed;
}

void PackedWeights::pack(const TensorView& weight) {
  of(weight, PackedWeight::Layout::kPacked);
  const std::lock_guard lock(mutex_);
  given_back_.insert(weight.data);
}

void* address_of(const Graph& graph, const SegmentBindings& bindings, ValueId id) {
  const graph::Value& value = graph.value(id);
  const ValueId base = graph.storage(id);
  const auto at = static_cast<std::size_t>(base);
  STOF_CHECK(at < bindings.addresses.size() && bindings.addresses[at] != nullptr, kInvalidArgument,
             "bindings: expected an address of value \"{}\"", graph.value(base).name);
  return static_cast<float*>(bindings.addresses[at]) +
         (value.view_of == graph::kNoId ? 0 : value.view_column);
}

Matrix matrix_of(const Graph& graph, const SegmentBindings& bindings, ValueId id) {
  const graph::Value& value = graph.value(id);
  Matrix matrix;
  matrix.data = static_cast<float*>(address_of(graph, bindings, id));
  matrix.columns = value.shape[value.shape.rank() - 1];
  matrix.rows = value.shape.rank() == 2 ? value.shape[0] : 1;
  const Dims& base = graph.value(graph.storage(id)).shape;
  matrix.stride = matrix.rows == 1 ? 0 : base[base.rank() - 1];
  return matrix;
}

bool is_dense(const Graph& graph, ValueId id) {
  const graph::Value& value = graph.value(id);
  return value.dtype == DType::kFloat32 && value.shape.rank() == 2 &&
         value.shape == graph.value(graph.storage(id)).shape;
}

std::vector<Choice> candidates(const Graph& graph, const fusion::Segment& segment) {
  switch (segment.family) {
    case Family::kGemm:
      if (!product_fits(graph, segment)) return {};
      return {{"onednn", {{"packed", 1}}}, {"onednn", {{"packed", 0}}}};
    case Family::kRow:
    case Family::kEmbedding:
    case Family::kElementwise:
      if (!rows_fit(graph, segment)) return {};
      return {{"row", {{"chunk", 0}}}, {"row", {{"chunk", 8}}}, {"row", {{"chunk", 64}}}};
    case Family::kAttention:
      if (graph.value(segment.outputs[0]).dtype != DType::kFloat32) return {};
      return {{"attention", {}}};
    case Family::kGemmChain:
    case Family::kNormGemm:
    case Family::kPool:
      break;
  }
  return {};
}

std::unique_ptr<SegmentRunner> make_runner(const Graph& graph, const fusion::Segment& segment,
                                           const Choice& choice, const SegmentBindings& bindings) {
  const auto refuse = [&] {
    throw_error(ErrorCode::kUnsupported, "segment {}: the CPU has no kernel \"{}\" for it",
                describe(graph, segment), choice.text());
  };
  const std::vector<Choice> known = candidates(graph, segment);
  if (known.empty() || known[0].family != choice.family) refuse();
  if (choice.family == "onednn") return make_product(graph, segment, choice, bindings);
  if (choice.family == "row") return make_rows(graph, segment, choice, bindings);
  return make_attention(graph, segment, bindings);
}

}  // namespace stof::cpu
