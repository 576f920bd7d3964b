// What makes a list of operators a graph.

#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/text.h"
#include "graph/graph.h"
#include "graph/shapes.h"

namespace stof::graph {
namespace {

std::string name_of(const Value& value) { return fmt::format("value {}", quote_text(value.name)); }

std::string name_of(const Operator& op) {
  return fmt::format("operator {} ({})", quote_text(op.name), to_string(op.op));
}

void check_names(const Graph& graph) {
  std::set<std::string_view> seen;
  for (const Value& value : graph.values())
    STOF_CHECK(!value.name.empty() && seen.insert(value.name).second, kInvalidArgument,
               "{}: expected a name of its own", name_of(value));
}

void check_inputs(const Graph& graph, OperatorId id) {
  const Operator& op = graph.op(id);
  for (const ValueId input : op.inputs) {
    STOF_CHECK(input >= 0 && input < static_cast<ValueId>(graph.values().size()), kInvalidArgument,
               "{}: expected an input below {}, got {}", name_of(op), graph.values().size(), input);
    const Value& value = graph.value(input);
    STOF_CHECK(value.producer < id, kInvalidArgument,
               "{}: expected inputs made before it, got {}, made by operator {}", name_of(op),
               name_of(value), value.producer);
  }
}

void check_outputs(const Graph& graph, OperatorId id) {
  const Operator& op = graph.op(id);
  STOF_CHECK(op.outputs.size() == 1, kInvalidArgument, "{}: expected one output, got {}",
             name_of(op), op.outputs.size());
  const Value& value = graph.value(op.outputs[0]);
  STOF_CHECK(value.producer == id && value.view_of == kNoId && value.name == op.name,
             kInvalidArgument,
             "{}: expected an output of its name that it alone makes, got {} of operator {}",
             name_of(op), name_of(value), value.producer);
  const Dims shape = infer_shape(graph.values(), op, value.shape);
  const DType dtype = infer_dtype(graph.values(), op);
  STOF_CHECK(shape == value.shape && dtype == value.dtype, kInvalidArgument,
             "{}: {}: expected {}{}, got {}{}", name_of(op), name_of(value), to_string(dtype),
             shape.to_string(), to_string(value.dtype), value.shape.to_string());
}

void check_cache_store(const Graph& graph, OperatorId id) {
  const Operator& op = graph.op(id);
  if (op.op != Op::kCacheStore) return;
  STOF_CHECK(graph.value(op.outputs[0]).overwrites == op.inputs[2], kInvalidArgument,
             "{}: expected to be written over its cache, {}", name_of(op),
             name_of(graph.value(op.inputs[2])));
}

void check_layers(const Graph& graph) {
  int last = kNoId;
  std::set<int> done;
  for (const Operator& op : graph.operators()) {
    if (op.layer != last && last != kNoId) done.insert(last);
    STOF_CHECK(op.layer >= kNoId && !done.contains(op.layer), kInvalidArgument,
               "{}: expected each layer's operators in one run, got layer {} again", name_of(op),
               op.layer);
    last = op.layer;
  }
  for (int layer = 0; layer < graph.num_layers(); ++layer) graph.layer_range(layer);
}

void check_view(const Graph& graph, ValueId id) {
  const Value& view = graph.value(id);
  STOF_CHECK(view.view_of >= 0 && view.view_of < static_cast<ValueId>(graph.values().size()),
             kInvalidArgument, "{}: expected a view of a value below {}, got {}", name_of(view),
             graph.values().size(), view.view_of);
  const Value& base = graph.value(view.view_of);
  STOF_CHECK(base.view_of == kNoId && base.shape.rank() == 2 && view.shape.rank() == 2 &&
                 base.dtype == view.dtype && base.producer == view.producer &&
                 base.kind == view.kind && base.shape[0] == view.shape[0] &&
                 view.view_column >= 0 && view.view_column <= base.shape[1] - view.shape[1],
             kInvalidArgument, "{}: expected columns of {} {}{}, got {}{} from column {}",
             name_of(view), name_of(base), to_string(base.dtype), base.shape.to_string(),
             to_string(view.dtype), view.shape.to_string(), view.view_column);
}

/// An update in place must not pull memory from under a reader.
void check_overwrite(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  STOF_CHECK(
      value.overwrites >= 0 && value.overwrites < static_cast<ValueId>(graph.values().size()),
      kInvalidArgument, "{}: expected to overwrite a value below {}, got {}", name_of(value),
      graph.values().size(), value.overwrites);
  const Value& target = graph.value(value.overwrites);
  STOF_CHECK(value.kind == ValueKind::kActivation && value.view_of == kNoId &&
                 target.view_of == kNoId && target.kind != ValueKind::kWeight &&
                 target.dtype == value.dtype && target.shape == value.shape &&
                 target.producer < value.producer && !target.live_out,
             kInvalidArgument,
             "{}: expected to overwrite an earlier value of its type and shape that is neither "
             "view, weight nor result, got {} {}{}",
             name_of(value), name_of(target), to_string(target.dtype), target.shape.to_string());
  for (std::size_t other = 0; other < graph.values().size(); ++other)
    STOF_CHECK(
        static_cast<ValueId>(other) == id || graph.values()[other].overwrites != value.overwrites,
        kInvalidArgument, "{}: {} is overwritten by {} too", name_of(value), name_of(target),
        name_of(graph.values()[other]));
  const Operator& op = graph.op(value.producer);
  for (const OperatorId reader : target.consumers) {
    STOF_CHECK(reader <= value.producer, kInvalidArgument,
               "{}: overwrites {}, which {} reads later", name_of(value), name_of(target),
               name_of(graph.op(reader)));
    if (reader != value.producer) continue;
    // Element by element what is read is what is written; other operators read it again.
    if (op.op == Op::kCacheStore && op.inputs[0] != value.overwrites) continue;
    const bool in_place = op.op == Op::kBias || op.op == Op::kActivation || op.op == Op::kAdd ||
                          op.op == Op::kMultiply;
    bool whole = true;
    for (const ValueId input : op.inputs)
      if (graph.value(input).view_of == value.overwrites) whole = false;
    STOF_CHECK(in_place && whole, kInvalidArgument,
               "{}: expected an elementwise operator over whole rows to write over its operand "
               "{}, got {}",
               name_of(value), name_of(target), name_of(op));
  }
}

void check_values(const Graph& graph) {
  std::vector<std::vector<OperatorId>> consumers(graph.values().size());
  for (OperatorId i = 0; i < graph.num_operators(); ++i)
    for (const ValueId input : graph.op(i).inputs)
      for (ValueId read = input; read != kNoId; read = graph.value(read).view_of) {
        auto& readers = consumers[static_cast<std::size_t>(read)];
        if (readers.empty() || readers.back() != i) readers.push_back(i);
      }
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    const bool made = value.producer != kNoId;
    STOF_CHECK(
        made == (value.kind == ValueKind::kActivation) && value.producer < graph.num_operators(),
        kInvalidArgument, "{}: expected a producer below {} exactly if it is an activation",
        name_of(value), graph.num_operators());
    if (made && value.view_of == kNoId) {
      const std::vector<ValueId>& outputs = graph.op(value.producer).outputs;
      STOF_CHECK(
          std::find(outputs.begin(), outputs.end(), static_cast<ValueId>(i)) != outputs.end(),
          kInvalidArgument, "{}: expected among the outputs of its producer, {}", name_of(value),
          name_of(graph.op(value.producer)));
    }
    STOF_CHECK(value.consumers == consumers[i], kInvalidArgument,
               "{}: expected as consumers the {} operators that read it or a view of it, got {}",
               name_of(value), consumers[i].size(), value.consumers.size());
    if (value.overwrites != kNoId) check_overwrite(graph, static_cast<ValueId>(i));
  }
}

}  // namespace

void Graph::validate() const {
  STOF_CHECK(!operators_.empty(), kInvalidArgument, "graph: expected at least one operator");
  check_names(*this);
  // Views first: what follows walks from views to their bases.
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].view_of != kNoId) check_view(*this, static_cast<ValueId>(i));
  for (OperatorId i = 0; i < num_operators(); ++i) check_inputs(*this, i);
  for (OperatorId i = 0; i < num_operators(); ++i) {
    check_outputs(*this, i);
    check_cache_store(*this, i);
  }
  check_layers(*this);
  check_values(*this);
  STOF_CHECK(!live_outs().empty(), kInvalidArgument,
             "graph: expected at least one result; mark_live_out() names it");
}

}  // namespace stof::graph
