#include "graph/graph.h"

#include <algorithm>

#include "core/check.h"
#include "core/hash.h"
#include "core/text.h"

namespace stof::graph {

std::string_view to_string(Op op) {
  switch (op) {
    case Op::kEmbedding:
      return "embedding";
    case Op::kMatmul:
      return "matmul";
    case Op::kBias:
      return "bias";
    case Op::kActivation:
      return "activation";
    case Op::kAdd:
      return "add";
    case Op::kMultiply:
      return "multiply";
    case Op::kLayerNorm:
      return "layer_norm";
    case Op::kRmsNorm:
      return "rms_norm";
    case Op::kRope:
      return "rope";
    case Op::kHeadNorm:
      return "head_norm";
    case Op::kAttention:
      return "attention";
    case Op::kHeadStore:
      return "head_store";
    case Op::kCacheStore:
      return "cache_store";
    case Op::kReshape:
      return "reshape";
    case Op::kPool:
      return "pool";
    case Op::kRowSquares:
      return "row_squares";
    case Op::kRmsScale:
      return "rms_scale";
  }
  throw_error(ErrorCode::kInternal, "operator kind {} has no name", static_cast<int>(op));
}

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kGeluErf:
      return "gelu_erf";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kSilu:
      return "silu";
  }
  throw_error(ErrorCode::kInternal, "activation {} has no name", static_cast<int>(activation));
}

std::string_view to_string(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
      return "none";
    case Pooling::kMean:
      return "mean";
    case Pooling::kCls:
      return "cls";
    case Pooling::kMax:
      return "max";
  }
  throw_error(ErrorCode::kInternal, "pooling {} has no name", static_cast<int>(pooling));
}

std::string_view to_string(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
      return "input";
    case ValueKind::kWeight:
      return "weight";
    case ValueKind::kState:
      return "state";
    case ValueKind::kActivation:
      return "activation";
  }
  throw_error(ErrorCode::kInternal, "value kind {} has no name", static_cast<int>(kind));
}

bool is_compute_intensive(Op op) { return op == Op::kMatmul || op == Op::kAttention; }

Graph::Graph(std::vector<Value> values, std::vector<Operator> operators)
    : values_(std::move(values)), operators_(std::move(operators)) {}

const Value& Graph::value(ValueId id) const {
  STOF_CHECK(id >= 0 && id < static_cast<ValueId>(values_.size()), kInvalidArgument,
             "graph: expected a value below {}, got {}", values_.size(), id);
  return values_[static_cast<std::size_t>(id)];
}

const Operator& Graph::op(OperatorId id) const {
  STOF_CHECK(id >= 0 && id < num_operators(), kInvalidArgument,
             "graph: expected an operator below {}, got {}", num_operators(), id);
  return operators_[static_cast<std::size_t>(id)];
}

int Graph::num_layers() const {
  int layers = 0;
  for (const Operator& op : operators_) layers = std::max(layers, op.layer + 1);
  return layers;
}

int Graph::num_masks() const {
  int masks = 0;
  for (const Operator& op : operators_)
    if (op.op == Op::kAttention) masks = std::max(masks, op.attributes.mask + 1);
  return masks;
}

std::pair<OperatorId, OperatorId> Graph::layer_range(int layer) const {
  OperatorId first = kNoId, last = kNoId;
  for (OperatorId i = 0; i < num_operators(); ++i) {
    if (operators_[static_cast<std::size_t>(i)].layer != layer) continue;
    if (first == kNoId) first = i;
    last = i;
  }
  STOF_CHECK(layer >= 0 && first != kNoId, kInvalidArgument,
             "graph: expected a layer below {}, got {}", num_layers(), layer);
  return {first, last};
}

ValueId Graph::find(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].name == name) return static_cast<ValueId>(i);
  return kNoId;
}

ValueId Graph::storage(ValueId id) const {
  for (;;) {
    const Value& here = value(id);
    if (here.view_of != kNoId) {
      id = here.view_of;
    } else if (here.overwrites != kNoId) {
      id = here.overwrites;
    } else {
      return id;
    }
  }
}

std::vector<ValueId> Graph::of_kind(ValueKind kind) const {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind == kind) ids.push_back(static_cast<ValueId>(i));
  return ids;
}

std::vector<ValueId> Graph::live_outs() const {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].live_out) ids.push_back(static_cast<ValueId>(i));
  return ids;
}

std::string Graph::describe() const {
  return fmt::format("graph of {} operators in {} layers, {} inputs, {} weights, {} results",
                     num_operators(), num_layers(), of_kind(ValueKind::kInput).size(),
                     of_kind(ValueKind::kWeight).size(), live_outs().size());
}

Fingerprint Graph::fingerprint() const {
  Hasher hasher;
  hasher.add("stof.graph.1").add(static_cast<std::int64_t>(values_.size()));
  for (const Value& value : values_) {  // consumers follow from the operators
    hasher.add(value.name).add(to_string(value.kind)).add(to_string(value.dtype));
    hasher.add(std::int64_t{value.shape.rank()});
    for (const std::int64_t extent : value.shape) hasher.add(extent);
    hasher.add(std::int64_t{value.producer}).add(std::int64_t{value.live_out});
    hasher.add(std::int64_t{value.view_of}).add(value.view_column);
    hasher.add(std::int64_t{value.overwrites});
  }
  hasher.add(static_cast<std::int64_t>(operators_.size()));
  for (const Operator& op : operators_) {
    hasher.add(to_string(op.op)).add(op.name).add(std::int64_t{op.layer});
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      hasher.add(static_cast<std::int64_t>(ids->size()));
      for (const ValueId id : *ids) hasher.add(std::int64_t{id});
    }
    add_attributes(hasher, op.attributes);
    // Fingerprints of graphs with one mask are stored without it.
    if (op.attributes.mask != 0) hasher.add(std::int64_t{op.attributes.mask});
  }
  return hasher.finish();
}

void add_attributes(Hasher& hasher, const Attributes& attributes) {
  hasher.add(to_string(attributes.activation)).add(attributes.epsilon);
  hasher.add(attributes.heads).add(attributes.kv_heads).add(attributes.head_dim);
  constexpr double kFormerTheta = 0;  // tuning records are stored under hashes with it
  hasher.add(attributes.scale).add(kFormerTheta).add(to_string(attributes.pooling));
  // Likewise without these.
  if (attributes.cross) hasher.add("cross");
  if (attributes.max_distance != 0)
    hasher.add("position_bias")
        .add(std::int64_t{attributes.bidirectional})
        .add(attributes.max_distance);
}

}  // namespace stof::graph
