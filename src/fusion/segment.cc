#include "fusion/segment.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/hash.h"
#include "core/text.h"

namespace stof::fusion {
namespace {

using graph::Activation;
using graph::Op;
using graph::Operator;
using graph::Value;

Step activation_step(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return Step::kRelu;
    case Activation::kGeluErf:
      return Step::kGeluErf;
    case Activation::kGeluTanh:
      return Step::kGeluTanh;
    case Activation::kSilu:
      return Step::kSilu;
    case Activation::kNone:
      break;
  }
  throw_error(ErrorCode::kInternal, "activation {} has no step", to_string(activation));
}

Step step_of(const Graph& graph, const Operator& op, ValueId operand) {
  switch (op.op) {
    case Op::kBias:
      return Step::kBias;
    case Op::kActivation:
      return activation_step(op.attributes.activation);
    case Op::kAdd:
      return Step::kResidual;
    case Op::kMultiply: {
      const Dims& result = graph.value(op.outputs[0]).shape;
      const bool row = graph.value(operand).shape == Dims({result[0], 1}) && result[1] != 1;
      return row ? Step::kRowScale : Step::kGate;
    }
    case Op::kLayerNorm:
      return Step::kLayerNorm;
    case Op::kRmsNorm:
      return Step::kRmsNorm;
    case Op::kRope:
      return Step::kRope;
    case Op::kHeadNorm:
      return Step::kHeadNorm;
    case Op::kHeadStore:
      return Step::kHeadStore;
    case Op::kCacheStore:
      return Step::kCacheStore;
    case Op::kMatmul:
      return Step::kMatmul;
    case Op::kRowSquares:
      return Step::kRowSquares;
    case Op::kRmsScale:
      return Step::kRmsScale;
    default:
      throw_error(ErrorCode::kInternal, "operator {} is no step", to_string(op.op));
  }
}

Family family_of(const Graph& graph, OperatorId first, OperatorId last) {
  int matmuls = 0;
  bool norm = false;
  for (OperatorId i = first; i <= last; ++i) {
    const Op op = graph.op(i).op;
    matmuls += op == Op::kMatmul;
    norm = norm || op == Op::kLayerNorm || op == Op::kRmsNorm;
  }
  switch (graph.op(first).op) {
    case Op::kEmbedding:
      return Family::kEmbedding;
    case Op::kAttention:
      return Family::kAttention;
    case Op::kPool:
      return Family::kPool;
    default:
      break;
  }
  if (matmuls > 0 && graph.op(first).op != Op::kMatmul) return Family::kNormGemm;
  if (matmuls > 0) return matmuls == 1 ? Family::kGemm : Family::kGemmChain;
  return norm ? Family::kRow : Family::kElementwise;
}

void add_once(std::vector<ValueId>& ids, ValueId id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

/// Whether an operator after `last`, or who runs the graph, reads the value or a view of it.
bool is_needed_after(const Graph& graph, ValueId id, OperatorId last) {
  const std::vector<OperatorId>& consumers = graph.value(id).consumers;  // ascending
  if (!consumers.empty() && consumers.back() > last) return true;
  return std::any_of(graph.values().begin(), graph.values().end(), [&](const Value& value) {
    return value.live_out && (&value == &graph.value(id) || value.view_of == id);
  });
}

/// Numbers values in the order in which they are met, and hashes each once.
class ValueNumbers {
 public:
  ValueNumbers(const Graph& graph, Hasher& hasher) : graph_(graph), hasher_(hasher) {}

  void add(ValueId id) {
    const auto [found, met_first] = numbers_.emplace(id, static_cast<int>(numbers_.size()));
    hasher_.add(std::int64_t{found->second});
    if (!met_first) return;
    const Value& value = graph_.value(id);
    hasher_.add(std::int64_t{value.kind == graph::ValueKind::kWeight});
    hasher_.add(to_string(value.dtype)).add(std::int64_t{value.shape.rank()});
    for (const std::int64_t extent : value.shape) hasher_.add(extent);
    hasher_.add(std::int64_t{value.view_of != kNoId}).add(value.view_column);
    if (value.view_of != kNoId) add(value.view_of);
    // Where the result lies decides how it may be computed.
    hasher_.add(std::int64_t{value.overwrites != kNoId});
    if (value.overwrites != kNoId) add(value.overwrites);
  }

 private:
  const Graph& graph_;
  Hasher& hasher_;
  std::map<ValueId, int> numbers_;
};

}  // namespace

bool first_is_step(Family family) {
  return family == Family::kRow || family == Family::kElementwise || family == Family::kNormGemm;
}

std::string_view to_string(Family family) {
  switch (family) {
    case Family::kGemm:
      return "gemm";
    case Family::kRow:
      return "row";
    case Family::kAttention:
      return "attention";
    case Family::kEmbedding:
      return "embedding";
    case Family::kElementwise:
      return "elementwise";
    case Family::kGemmChain:
      return "gemm_chain";
    case Family::kPool:
      return "pool";
    case Family::kNormGemm:
      return "norm_gemm";
  }
  throw_error(ErrorCode::kInternal, "family {} has no name", static_cast<int>(family));
}

std::string_view to_string(Step step) {
  switch (step) {
    case Step::kBias:
      return "bias";
    case Step::kRelu:
      return "relu";
    case Step::kGeluErf:
      return "gelu_erf";
    case Step::kGeluTanh:
      return "gelu_tanh";
    case Step::kSilu:
      return "silu";
    case Step::kGate:
      return "gate";
    case Step::kResidual:
      return "residual";
    case Step::kRowScale:
      return "row_scale";
    case Step::kRowSquares:
      return "row_squares";
    case Step::kRmsScale:
      return "rms_scale";
    case Step::kLayerNorm:
      return "layer_norm";
    case Step::kRmsNorm:
      return "rms_norm";
    case Step::kRope:
      return "rope";
    case Step::kHeadNorm:
      return "head_norm";
    case Step::kHeadStore:
      return "head_store";
    case Step::kCacheStore:
      return "cache_store";
    case Step::kMatmul:
      return "matmul";
  }
  throw_error(ErrorCode::kInternal, "step {} has no name", static_cast<int>(step));
}

std::string describe(const Graph& graph, const Segment& segment) {
  std::string text =
      fmt::format("{} {}", to_string(segment.family), quote_text(graph.op(segment.first).name));
  for (std::size_t i = 0; i < segment.steps.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ": " : ", ", to_string(segment.steps[i].step));
  return text;
}

Segment make_segment(const Graph& graph, OperatorId first, OperatorId last, const Limits& limits) {
  const std::vector<Reason> reasons = legality(graph, first, last, limits);
  STOF_CHECK(reasons.empty(), kInvalidArgument, "operators {} to {} can't run as one: {} ({})",
             quote_text(graph.op(first).name), quote_text(graph.op(last).name), reasons[0].text,
             to_string(reasons[0].code));
  Segment segment;
  segment.first = first;
  segment.last = last;
  segment.family = family_of(graph, first, last);
  const auto inside = [&](ValueId id) { return graph.value(id).producer >= first; };
  for (const ValueId id : graph.op(first).inputs) add_once(segment.inputs, id);
  for (OperatorId i = first_is_step(segment.family) ? first : first + 1; i <= last; ++i) {
    const Operator& op = graph.op(i);
    if (op.op == Op::kReshape) continue;
    // The running value is the input that the operator before made, or a view of it.
    std::size_t running = 0;
    for (std::size_t k = 0; i > first && k < op.inputs.size(); ++k) {
      const ValueId before = graph.op(i - 1).outputs[0];
      if (op.inputs[k] == before || graph.value(op.inputs[k]).view_of == before) running = k;
    }
    EpilogueStep step;
    if (i > first && op.inputs[running] != graph.op(i - 1).outputs[0]) {
      step.operand = op.inputs[running];  // a gate's half
      if (segment.gate_view == kNoId) segment.gate_view = step.operand;
    }
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      if (k == running) continue;
      (step.operand == kNoId ? step.operand : step.operand2) = op.inputs[k];
      if (!inside(op.inputs[k])) add_once(segment.inputs, op.inputs[k]);
    }
    step.step = step_of(graph, op, step.operand);
    step.epsilon = op.attributes.epsilon;
    step.op = i;
    segment.steps.push_back(step);
  }
  segment.outputs = graph.op(last).outputs;
  for (OperatorId i = first; i < last; ++i) {
    const ValueId id = graph.op(i).outputs[0];
    if (is_needed_after(graph, id, last)) segment.outputs.push_back(id);
  }
  return segment;
}

std::vector<Segment> decode(const Graph& graph, const Scheme& scheme, const Limits& limits) {
  std::vector<Segment> segments;
  for (OperatorId i = 0; i < graph.num_operators();) {
    const int layer = graph.op(i).layer;
    if (layer == kNoId) {
      OperatorId last = i;
      // Not over a product, and behind one its bias alone: not every backend runs more, and nothing
      // takes these segments apart.
      const auto joins = [&](Op op) {
        return op != Op::kMatmul && (op == Op::kBias || graph.op(i).op != Op::kMatmul);
      };
      while (last + 1 < graph.num_operators() && graph.op(last + 1).layer == kNoId &&
             joins(graph.op(last + 1).op) && legality(graph, i, last + 1, limits).empty())
        ++last;
      segments.push_back(make_segment(graph, i, last, limits));
      i = last + 1;
      continue;
    }
    const auto [first, last] = graph.layer_range(layer);
    STOF_CHECK(last - first + 1 == scheme.size(), kInvalidArgument,
               "scheme {}: expected one bit for each of the {} operators of layer {}, got {}",
               scheme.text(), last - first + 1, layer, scheme.size());
    for (const auto& [begin, end] : scheme.segments())
      segments.push_back(make_segment(graph, first + begin, first + end, limits));
    i = last + 1;
  }
  return segments;
}

Fingerprint segment_hash(const Graph& graph, const Segment& segment) {
  Hasher hasher;
  hasher.add("stof.segment.1").add(to_string(segment.family));
  hasher.add(std::int64_t{segment.last - segment.first});
  ValueNumbers numbers(graph, hasher);
  for (OperatorId i = segment.first; i <= segment.last; ++i) {
    const Operator& op = graph.op(i);
    hasher.add(to_string(op.op)).add(static_cast<std::int64_t>(op.inputs.size()));
    for (const ValueId id : op.inputs) numbers.add(id);
    for (const ValueId id : op.outputs) numbers.add(id);
    add_attributes(hasher, op.attributes);
  }
  hasher.add(static_cast<std::int64_t>(segment.outputs.size()));
  for (const ValueId id : segment.outputs) numbers.add(id);
  return hasher.finish();
}

}  // namespace stof::fusion
