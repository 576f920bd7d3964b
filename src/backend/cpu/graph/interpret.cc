#include "backend/cpu/graph/interpret.h"

#include <algorithm>

#include "backend/cpu/graph/bindings.h"
#include "core/check.h"

namespace stof::cpu {
namespace {

using fusion::EpilogueStep;
using fusion::Family;
using fusion::Segment;
using fusion::Step;
using graph::Graph;
using graph::kNoId;
using graph::Op;
using graph::Operator;
using graph::Value;
using graph::ValueId;

// --- operator by operator -----------------------------------------------------------------------

Reals run_operator(const Bindings& bindings, const Operator& op) {
  if (op.op == Op::kEmbedding) return embed(bindings, op);
  if (op.op == Op::kPool) return pool(bindings, op);
  Reals x = bindings.load(op.inputs[0]);
  switch (op.op) {
    case Op::kMatmul:
      return multiply_matrices(x, bindings.load(op.inputs[1]));
    case Op::kBias:
    case Op::kAdd:
      add(x, bindings.load(op.inputs[1]));
      return x;
    case Op::kMultiply:
      multiply(x, bindings.load(op.inputs[1]));
      return x;
    case Op::kActivation:
      for (double& value : x.values) value = activate(op.attributes.activation, value);
      return x;
    case Op::kLayerNorm:
      layer_norm(x, bindings.load(op.inputs[1]), bindings.load(op.inputs[2]),
                 op.attributes.epsilon);
      return x;
    case Op::kRmsNorm:
      rms_norm(x, bindings.load(op.inputs[1]), op.attributes.epsilon);
      return x;
    case Op::kRope:
      rope(x, bindings.load(op.inputs[1]), bindings.load(op.inputs[2]), op.attributes);
      return x;
    case Op::kHeadNorm:
      head_norm(x, bindings.load(op.inputs[1]), bindings.load(op.inputs[2]), op.attributes);
      return x;
    case Op::kHeadStore:
      return heads_apart(x, op.attributes);
    case Op::kCacheStore:
      return stored_in_cache(x, bindings.load(op.inputs[1]), bindings.load(op.inputs[2]),
                             op.attributes);
    case Op::kReshape:
      return x;
    case Op::kRowSquares:
      return row_squares(x);
    case Op::kRmsScale:
      rms_scale(x, bindings.load(op.inputs[1]), op.attributes.epsilon);
      return x;
    default:
      throw_error(ErrorCode::kInternal, "operator {} is not interpreted", to_string(op.op));
  }
}

// --- step by step -------------------------------------------------------------------------------

graph::Activation activation_of(Step step) {
  switch (step) {
    case Step::kRelu:
      return graph::Activation::kRelu;
    case Step::kGeluErf:
      return graph::Activation::kGeluErf;
    case Step::kGeluTanh:
      return graph::Activation::kGeluTanh;
    case Step::kSilu:
      return graph::Activation::kSilu;
    default:
      return graph::Activation::kNone;
  }
}

/// One segment's running value and what of it is stored.
class SegmentRun {
 public:
  SegmentRun(const Bindings& bindings, const Segment& segment)
      : bindings_(bindings), graph_(bindings.graph()), segment_(segment) {}

  std::vector<Tensor> run() {
    const Operator& first = graph_.op(segment_.first);
    if (segment_.family == Family::kAttention) {
      std::vector<Tensor> outputs;
      outputs.push_back(attend(bindings_, first));
      return outputs;
    }
    const bool headed = !first_is_step(segment_.family);
    running_ = headed ? run_operator(bindings_, first) : bindings_.load(first.inputs[0]);
    if (headed) store(segment_.first);
    for (const EpilogueStep& step : segment_.steps) {
      apply(step);
      store(step.op);
    }
    if (segment_.steps.empty()) store(segment_.last);
    std::vector<Tensor> outputs;
    for (const ValueId id : segment_.outputs) outputs.push_back(std::move(stored_.at(id)));
    return outputs;
  }

 private:
  void apply(const EpilogueStep& step) {
    const graph::Attributes& attributes = graph_.op(step.op).attributes;
    switch (step.step) {
      case Step::kBias:
      case Step::kResidual:
        return add(running_, operand(step.operand));
      case Step::kGate:
      case Step::kRowScale:
        return multiply(running_, operand(step.operand));
      case Step::kRelu:
      case Step::kGeluErf:
      case Step::kGeluTanh:
      case Step::kSilu:
        take_gate(step);
        for (double& value : running_.values) value = activate(activation_of(step.step), value);
        return;
      case Step::kLayerNorm:
        return layer_norm(running_, operand(step.operand), operand(step.operand2), step.epsilon);
      case Step::kRmsNorm:
        return rms_norm(running_, operand(step.operand), step.epsilon);
      case Step::kRope:
        return rope(running_, operand(step.operand), operand(step.operand2), attributes);
      case Step::kHeadNorm:
        return head_norm(running_, operand(step.operand), operand(step.operand2), attributes);
      case Step::kHeadStore:
        running_ = heads_apart(running_, attributes);
        return;
      case Step::kCacheStore:
        running_ =
            stored_in_cache(running_, operand(step.operand), operand(step.operand2), attributes);
        return;
      case Step::kMatmul: {
        // A product inside reads 16-bit operands, as a first one does.
        const DType dtype = graph_.value(step.operand).dtype;
        const Tensor x = rounded(running_, dtype, {running_.rows, running_.columns});
        running_ = multiply_matrices(load_reals(x.view()), operand(step.operand));
        return;
      }
      case Step::kRowSquares:
        running_ = row_squares(running_);
        return;
      case Step::kRmsScale:
        return rms_scale(running_, operand(step.operand), step.epsilon);
    }
  }

  /// Where a gate's halves part, the product is kept for the other one.
  void take_gate(const EpilogueStep& step) {
    if (step.operand == kNoId) return;
    product_ = running_;
    const Value& view = graph_.value(step.operand);
    running_ = columns_of(product_, view.view_column, view.shape[1]);
  }

  Reals operand(ValueId id) const {
    const Value& value = graph_.value(id);
    const bool made_inside = value.producer >= segment_.first && value.producer <= segment_.last;
    if (made_inside) return columns_of(product_, value.view_column, value.shape[1]);
    return bindings_.load(id);
  }

  void store(graph::OperatorId op) {
    const ValueId id = graph_.op(op).outputs[0];
    const std::vector<ValueId>& outputs = segment_.outputs;
    if (std::find(outputs.begin(), outputs.end(), id) == outputs.end()) return;
    const Value& value = graph_.value(id);
    stored_[id] = rounded(running_, value.dtype, value.shape);
  }

  const Bindings& bindings_;
  const Graph& graph_;
  const Segment& segment_;
  Reals running_, product_;
  GraphResults stored_;
};

}  // namespace

GraphResults interpret_graph(const Graph& graph, const GraphOperands& operands) {
  Bindings bindings(graph, operands);
  GraphResults results;
  for (const Operator& op : graph.operators()) {
    const ValueId id = op.outputs[0];
    const Value& value = graph.value(id);
    results[id] = op.op == Op::kAttention
                      ? attend(bindings, op)
                      : rounded(run_operator(bindings, op), value.dtype, value.shape);
    bindings.bind(id, std::as_const(results[id]).view());
  }
  return results;
}

GraphResults interpret_segments(const Graph& graph, std::span<const Segment> segments,
                                const GraphOperands& operands) {
  Bindings bindings(graph, operands);
  GraphResults results;
  for (const Segment& segment : segments) {
    std::vector<Tensor> outputs = SegmentRun(bindings, segment).run();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const ValueId id = segment.outputs[i];
      results[id] = std::move(outputs[i]);
      bindings.bind(id, std::as_const(results[id]).view());
    }
  }
  return results;
}

std::vector<Tensor> interpret_segment(const Graph& graph, const Segment& segment,
                                      const GraphOperands& operands) {
  return SegmentRun(Bindings(graph, operands), segment).run();
}

}  // namespace stof::cpu
