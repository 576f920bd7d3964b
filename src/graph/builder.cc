#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/text.h"
#include "graph/graph.h"
#include "graph/shapes.h"

namespace stof::graph {
namespace {

constexpr std::string_view kFirstLayer = "layer.0.";

std::string stamped_name(const std::string& name, int layer) {
  return fmt::format("layer.{}.{}", layer, name.substr(kFirstLayer.size()));
}

Operator make(Op kind, const std::string& name, std::vector<ValueId> inputs) {
  Operator op;
  op.op = kind;
  op.name = name;
  op.inputs = std::move(inputs);
  return op;
}

}  // namespace

ValueId GraphBuilder::add_value(Value value) {
  STOF_CHECK(!value.name.empty(), kInvalidArgument, "graph: expected a name for every value");
  for (int i = 0; i < value.shape.rank(); ++i)
    STOF_CHECK(value.shape[i] >= 1, kInvalidArgument,
               "value {}: expected extents of at least 1, got {}", quote_text(value.name),
               value.shape.to_string());
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId GraphBuilder::input(const std::string& name, DType dtype, const Dims& shape) {
  Value value;
  value.name = name;
  value.kind = ValueKind::kInput;
  value.dtype = dtype;
  value.shape = shape;
  return add_value(std::move(value));
}

ValueId GraphBuilder::weight(const std::string& name, DType dtype, const Dims& shape) {
  const ValueId id = input(name, dtype, shape);
  values_.back().kind = ValueKind::kWeight;
  return id;
}

ValueId GraphBuilder::state(const std::string& name, DType dtype, const Dims& shape) {
  const ValueId id = input(name, dtype, shape);
  values_.back().kind = ValueKind::kState;
  return id;
}

ValueId GraphBuilder::append(Operator op, const Dims& stated) {
  for (const ValueId id : op.inputs)
    STOF_CHECK(id >= 0 && id < static_cast<ValueId>(values_.size()), kInvalidArgument,
               "operator {} ({}): expected values of this graph, 0 to {}, got {}",
               quote_text(op.name), to_string(op.op), values_.size() - 1, id);
  Value value;
  value.name = op.name;
  value.shape = infer_shape(values_, op, stated);
  value.dtype = infer_dtype(values_, op);
  const auto id = static_cast<OperatorId>(operators_.size());
  value.producer = id;
  for (const ValueId input : op.inputs) {
    // Whoever reads a view reads its base.
    for (ValueId read = input; read != kNoId;
         read = values_[static_cast<std::size_t>(read)].view_of) {
      auto& consumers = values_[static_cast<std::size_t>(read)].consumers;
      if (consumers.empty() || consumers.back() != id) consumers.push_back(id);
    }
  }
  op.layer = layer_;
  op.outputs = {add_value(std::move(value))};
  operators_.push_back(std::move(op));
  return operators_.back().outputs[0];
}

ValueId GraphBuilder::embedding(const std::string& name, ValueId ids, ValueId words,
                                ValueId positions, ValueId places, ValueId segments) {
  Operator op = make(Op::kEmbedding, name, {ids, words});
  for (const ValueId id : {positions, places, segments})
    if (id != kNoId) op.inputs.push_back(id);
  return append(std::move(op));
}

ValueId GraphBuilder::matmul(const std::string& name, ValueId x, ValueId weight) {
  return append(make(Op::kMatmul, name, {x, weight}));
}

ValueId GraphBuilder::bias(const std::string& name, ValueId x, ValueId bias) {
  return append(make(Op::kBias, name, {x, bias}));
}

ValueId GraphBuilder::activation(const std::string& name, ValueId x, Activation activation) {
  Operator op = make(Op::kActivation, name, {x});
  op.attributes.activation = activation;
  return append(std::move(op));
}

ValueId GraphBuilder::add(const std::string& name, ValueId a, ValueId b) {
  return append(make(Op::kAdd, name, {a, b}));
}

ValueId GraphBuilder::multiply(const std::string& name, ValueId a, ValueId b) {
  return append(make(Op::kMultiply, name, {a, b}));
}

ValueId GraphBuilder::layer_norm(const std::string& name, ValueId x, ValueId gamma, ValueId beta,
                                 double epsilon) {
  Operator op = make(Op::kLayerNorm, name, {x, gamma, beta});
  op.attributes.epsilon = epsilon;
  return append(std::move(op));
}

ValueId GraphBuilder::rms_norm(const std::string& name, ValueId x, ValueId gamma, double epsilon) {
  Operator op = make(Op::kRmsNorm, name, {x, gamma});
  op.attributes.epsilon = epsilon;
  return append(std::move(op));
}

ValueId GraphBuilder::rope(const std::string& name, ValueId x, ValueId positions,
                           ValueId frequencies, std::int64_t heads, std::int64_t kv_heads,
                           std::int64_t head_dim) {
  Operator op = make(Op::kRope, name, {x, positions, frequencies});
  op.attributes.heads = heads;
  op.attributes.kv_heads = kv_heads;
  op.attributes.head_dim = head_dim;
  return append(std::move(op));
}

ValueId GraphBuilder::head_norm(const std::string& name, ValueId x, ValueId query_gamma,
                                ValueId key_gamma, std::int64_t heads, std::int64_t kv_heads,
                                std::int64_t head_dim, double epsilon) {
  Operator op = make(Op::kHeadNorm, name, {x, query_gamma, key_gamma});
  op.attributes.heads = heads;
  op.attributes.kv_heads = kv_heads;
  op.attributes.head_dim = head_dim;
  op.attributes.epsilon = epsilon;
  return append(std::move(op));
}

ValueId GraphBuilder::attention(const std::string& name, ValueId q, ValueId k, ValueId v,
                                std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                double scale, int mask) {
  Attributes attributes;
  attributes.heads = heads;
  attributes.kv_heads = kv_heads;
  attributes.head_dim = head_dim;
  attributes.scale = scale;
  attributes.mask = mask;
  return attention(name, q, k, v, kNoId, attributes);
}

ValueId GraphBuilder::attention(const std::string& name, ValueId q, ValueId k, ValueId v,
                                ValueId table, const Attributes& attributes) {
  Operator op = make(Op::kAttention, name, {q, k, v});
  if (table != kNoId) op.inputs.push_back(table);
  op.attributes = attributes;
  return append(std::move(op));
}

ValueId GraphBuilder::head_store(const std::string& name, ValueId x, std::int64_t heads,
                                 std::int64_t head_dim) {
  Operator op = make(Op::kHeadStore, name, {x});
  op.attributes.heads = heads;
  op.attributes.head_dim = head_dim;
  return append(std::move(op));
}

ValueId GraphBuilder::cache_store(const std::string& name, ValueId x, ValueId slots, ValueId cache,
                                  std::int64_t heads, std::int64_t kv_heads,
                                  std::int64_t head_dim) {
  Operator op = make(Op::kCacheStore, name, {x, slots, cache});
  op.attributes.heads = heads;
  op.attributes.kv_heads = kv_heads;
  op.attributes.head_dim = head_dim;
  const ValueId stored = append(std::move(op));
  overwrite(stored, cache);
  return stored;
}

ValueId GraphBuilder::reshape(const std::string& name, ValueId x, const Dims& shape) {
  return append(make(Op::kReshape, name, {x}), shape);
}

ValueId GraphBuilder::row_squares(const std::string& name, ValueId x) {
  return append(make(Op::kRowSquares, name, {x}));
}

ValueId GraphBuilder::rms_scale(const std::string& name, ValueId x, ValueId squares,
                                double epsilon) {
  Operator op = make(Op::kRmsScale, name, {x, squares});
  op.attributes.epsilon = epsilon;
  return append(std::move(op));
}

ValueId GraphBuilder::pool(const std::string& name, ValueId x, ValueId offsets, Pooling pooling) {
  Operator op = make(Op::kPool, name, {x, offsets});
  op.attributes.pooling = pooling;
  return append(std::move(op));
}

ValueId GraphBuilder::columns(const std::string& name, ValueId base, std::int64_t column,
                              std::int64_t count) {
  const Value& whole = at(base);
  STOF_CHECK(whole.shape.rank() == 2 && whole.view_of == kNoId, kInvalidArgument,
             "view {} of value {}: expected a matrix that is no view, got {}{}", quote_text(name),
             quote_text(whole.name), whole.view_of == kNoId ? "" : "a view of shape ",
             whole.shape.to_string());
  STOF_CHECK(column >= 0 && count >= 1 && column <= whole.shape[1] - count, kInvalidArgument,
             "view {} of value {}: expected columns within its {}, got {} from column {}",
             quote_text(name), quote_text(whole.name), whole.shape[1], count, column);
  Value view = whole;
  view.name = name;
  view.shape = {whole.shape[0], count};
  view.consumers.clear();
  view.live_out = false;
  view.view_of = base;
  view.view_column = column;
  view.overwrites = kNoId;
  return add_value(std::move(view));
}

Value& GraphBuilder::at(ValueId id) {
  STOF_CHECK(id >= 0 && id < static_cast<ValueId>(values_.size()), kInvalidArgument,
             "graph: expected a value from 0 to {}, got {}",
             static_cast<ValueId>(values_.size()) - 1, id);
  return values_[static_cast<std::size_t>(id)];
}

void GraphBuilder::mark_live_out(ValueId value) { at(value).live_out = true; }

void GraphBuilder::overwrite(ValueId value, ValueId target) {
  at(target);
  at(value).overwrites = target;
}

void GraphBuilder::begin_layer(ValueId input) {
  STOF_CHECK(layer_begin_.operators == 0 && layer_ == kNoId, kInvalidArgument,
             "graph: expected one begin_layer(), got another");
  at(input);
  layer_ = 0;
  layer_input_ = input;
  layer_begin_ = {values_.size(), operators_.size()};
}

void GraphBuilder::end_layer(ValueId output) {
  STOF_CHECK(layer_ == 0, kInvalidArgument, "graph: end_layer() without begin_layer()");
  STOF_CHECK(
      at(output).dtype == at(layer_input_).dtype && at(output).shape == at(layer_input_).shape,
      kInvalidArgument, "layer output {}: expected {}{}, the layer's input, got {}{}",
      quote_text(at(output).name), to_string(at(layer_input_).dtype),
      at(layer_input_).shape.to_string(), to_string(at(output).dtype),
      at(output).shape.to_string());
  layer_ = kNoId;
  layer_output_ = output;
  layer_end_ = {values_.size(), operators_.size()};
}

ValueId GraphBuilder::stamp_layers(int count, const std::vector<int>& masks) {
  STOF_CHECK(layer_output_ != kNoId, kInvalidArgument,
             "graph: stamp_layers() needs a layer between begin_layer() and end_layer()");
  STOF_CHECK(count >= 1, kInvalidArgument, "graph: layers: expected at least 1, got {}", count);
  STOF_CHECK(masks.empty() || masks.size() == static_cast<std::size_t>(count), kInvalidArgument,
             "graph: masks: expected none or one for each of {} layers, got {}", count,
             masks.size());
  const auto set_mask = [&](Operator& op, int layer) {
    if (op.op == Op::kAttention && !masks.empty())
      op.attributes.mask = masks[static_cast<std::size_t>(layer)];
  };
  for (std::size_t i = layer_begin_.operators; i < layer_end_.operators; ++i)
    set_mask(operators_[i], 0);
  ValueId previous = layer_output_;
  for (int layer = 1; layer < count; ++layer) {
    // Values of the first layer in this one; what lies outside of the layer is shared.
    std::map<ValueId, ValueId> here = {{layer_input_, previous}};
    const auto mapped = [&](ValueId id) {
      const auto found = here.find(id);
      return found == here.end() ? id : found->second;
    };
    const auto map_value = [&](ValueId id, ValueId copy) {
      here[id] = copy;
      const Value first = at(id);
      at(copy).live_out = first.live_out;
      if (first.overwrites != kNoId) at(copy).overwrites = mapped(first.overwrites);
    };
    std::size_t next = layer_begin_.operators;
    layer_ = layer;
    for (std::size_t v = layer_begin_.values; v < layer_end_.values; ++v) {
      const auto id = static_cast<ValueId>(v);
      const Value first = values_[v];
      STOF_CHECK(first.name.starts_with(kFirstLayer), kInvalidArgument,
                 "layer value {}: expected a name that starts with \"{}\"", quote_text(first.name),
                 kFirstLayer);
      const std::string name = stamped_name(first.name, layer);
      if (first.view_of != kNoId) {
        map_value(id, columns(name, mapped(first.view_of), first.view_column, first.shape[1]));
      } else if (first.kind != ValueKind::kActivation) {
        map_value(id, input(name, first.dtype, first.shape));
        values_.back().kind = first.kind;
      } else {
        Operator op = operators_[next++];
        op.name = name;
        set_mask(op, layer);
        for (ValueId& input : op.inputs) input = mapped(input);
        map_value(id, append(std::move(op), first.shape));
      }
    }
    layer_ = kNoId;
    previous = mapped(layer_output_);
  }
  return previous;
}

Graph GraphBuilder::build() {
  STOF_CHECK(layer_ == kNoId, kInvalidArgument, "graph: build() before end_layer()");
  Graph graph(std::move(values_), std::move(operators_));
  *this = GraphBuilder();
  graph.validate();
  return graph;
}

}  // namespace stof::graph
