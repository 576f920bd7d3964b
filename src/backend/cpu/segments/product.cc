// A matrix product and its steps, by oneDNN.

#include "backend/cpu/segments/operands.h"

namespace stof::cpu {
namespace {

using fusion::Segment;
using fusion::Step;
using graph::Graph;

/// False where oneDNN has no post-op for the step.
bool post_op_of(Step step, PostOp* op) {
  switch (step) {
    case Step::kRelu:
      *op = PostOp::kRelu;
      return true;
    case Step::kGeluErf:
      *op = PostOp::kGeluErf;
      return true;
    case Step::kGeluTanh:
      *op = PostOp::kGeluTanh;
      return true;
    case Step::kSilu:
      *op = PostOp::kSilu;
      return true;
    case Step::kGate:
      *op = PostOp::kMultiply;
      return true;
    case Step::kResidual:
      *op = PostOp::kAdd;
      return true;
    default:
      return false;
  }
}

bool is_weight_vector(const Graph& graph, graph::ValueId id) {
  const graph::Value& value = graph.value(id);
  return value.kind == graph::ValueKind::kWeight && value.dtype == DType::kFloat32 &&
         value.shape.rank() == 1;
}

/// Whether the first step is the bias that oneDNN adds itself.
bool starts_with_bias(const Graph& graph, const Segment& segment) {
  return !segment.steps.empty() && segment.steps[0].step == Step::kBias &&
         is_weight_vector(graph, segment.steps[0].operand);
}

class Product final : public SegmentRunner {
 public:
  Product(Linear linear, const float* x, float* y, std::vector<const float*> operands)
      : linear_(std::move(linear)), x_(x), y_(y), operands_(std::move(operands)) {}

  void run(std::int64_t rows) const override { linear_.run(x_, rows, y_, operands_); }

 private:
  Linear linear_;
  const float* x_;
  float* y_;
  std::vector<const float*> operands_;
};

}  // namespace

bool product_fits(const Graph& graph, const Segment& segment) {
  if (segment.outputs.size() != 1 || segment.gate_view != graph::kNoId) return false;
  if (!is_dense(graph, segment.inputs[0]) || !is_dense(graph, segment.inputs[1]) ||
      !is_dense(graph, segment.outputs[0]) ||
      graph.value(segment.inputs[1]).kind != graph::ValueKind::kWeight)
    return false;
  const Dims& shape = graph.value(segment.outputs[0]).shape;
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    const fusion::EpilogueStep& step = segment.steps[i];
    PostOp op;
    if (i == 0 && starts_with_bias(graph, segment)) continue;
    if (!post_op_of(step.step, &op)) return false;
    if (step.operand != graph::kNoId &&
        (!is_dense(graph, step.operand) || !(graph.value(step.operand).shape == shape)))
      return false;
  }
  return true;
}

std::unique_ptr<SegmentRunner> make_product(const Graph& graph, const Segment& segment,
                                            const fusion::Choice& choice,
                                            const SegmentBindings& bindings) {
  const auto view = [&](graph::ValueId id) {
    return TensorView(address_of(graph, bindings, id), DType::kFloat32, graph.value(id).shape);
  };
  const auto layout =
      choice.at("packed") != 0 ? PackedWeight::Layout::kPacked : PackedWeight::Layout::kPlain;
  const bool has_bias = starts_with_bias(graph, segment);
  std::vector<PostOp> ops;
  std::vector<const float*> operands;
  for (std::size_t i = has_bias ? 1 : 0; i < segment.steps.size(); ++i) {
    post_op_of(segment.steps[i].step, &ops.emplace_back());
    if (segment.steps[i].operand != graph::kNoId)
      operands.push_back(static_cast<const float*>(view(segment.steps[i].operand).data));
  }
  const graph::ValueId x = segment.inputs[0];
  Linear linear(bindings.weights->of(view(segment.inputs[1]), layout),
                has_bias ? view(segment.steps[0].operand) : TensorView(), std::move(ops));
  return std::make_unique<Product>(
      std::move(linear), static_cast<const float*>(view(x).data),
      static_cast<float*>(address_of(graph, bindings, segment.outputs[0])), std::move(operands));
}

}  // namespace stof::cpu
