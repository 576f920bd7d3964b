// A graph as text for people and as JSON.

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "graph/graph.h"

namespace stof::graph {
namespace {

std::string type_of(const Value& value) {
  return fmt::format("{}{}", to_string(value.dtype), value.shape.to_string());
}

/// "%qkv", or "%qkv[768:1536]" for a view.
std::string reference(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (value.view_of == kNoId) return "%" + value.name;
  return fmt::format("%{}[{}:{}]", graph.value(value.view_of).name, value.view_column,
                     value.view_column + value.shape[1]);
}

std::string attributes_text(const Attributes& a) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  if (a.activation != Activation::kNone) add("kind", std::string(to_string(a.activation)));
  if (a.epsilon != 0) add("epsilon", fmt::format("{}", a.epsilon));
  if (a.heads != 0) add("heads", fmt::format("{}", a.heads));
  if (a.kv_heads != 0) add("kv_heads", fmt::format("{}", a.kv_heads));
  if (a.head_dim != 0) add("head_dim", fmt::format("{}", a.head_dim));
  if (a.scale != 0) add("scale", fmt::format("{}", a.scale));
  if (a.mask != 0) add("mask", fmt::format("{}", a.mask));
  if (a.cross) add("keys", "cross");
  if (a.max_distance != 0) {
    add("buckets", a.bidirectional ? "bidirectional" : "causal");
    add("max_distance", fmt::format("{}", a.max_distance));
  }
  if (a.pooling != Pooling::kNone) add("kind", std::string(to_string(a.pooling)));
  return text.empty() ? text : fmt::format(" {{{}}}", text);
}

}  // namespace

std::string Graph::print() const {
  std::string text = describe() + "\n";
  for (const Value& value : values_)
    if (value.kind != ValueKind::kActivation && value.view_of == kNoId)
      text += fmt::format("%{} = {} : {}\n", value.name, to_string(value.kind), type_of(value));
  for (const Operator& op : operators_) {
    std::string inputs;
    for (const ValueId id : op.inputs)
      inputs += fmt::format("{}{}", inputs.empty() ? " " : ", ", reference(*this, id));
    for (const ValueId id : op.outputs) {
      const Value& out = value(id);
      text += fmt::format("%{} = {}{}{} : {}", out.name, to_string(op.op), inputs,
                          attributes_text(op.attributes), type_of(out));
      if (out.overwrites != kNoId) text += " over " + reference(*this, out.overwrites);
      text += "\n";
    }
  }
  for (const ValueId id : live_outs()) text += fmt::format("return {}\n", reference(*this, id));
  return text;
}

std::string Graph::to_json() const {
  using Json = nlohmann::ordered_json;
  Json json;
  Json& values = json["values"] = Json::array();
  for (const Value& value : values_) {
    Json entry = {{"name", value.name},
                  {"kind", to_string(value.kind)},
                  {"dtype", to_string(value.dtype)},
                  {"shape", std::vector<std::int64_t>(value.shape.begin(), value.shape.end())},
                  {"producer", value.producer},
                  {"consumers", value.consumers},
                  {"live_out", value.live_out}};
    if (value.view_of != kNoId)
      entry["view"] = {{"of", value.view_of}, {"column", value.view_column}};
    if (value.overwrites != kNoId) entry["overwrites"] = value.overwrites;
    values.push_back(std::move(entry));
  }
  Json& operators = json["operators"] = Json::array();
  for (const Operator& op : operators_) {
    const Attributes& a = op.attributes;
    Json attributes = Json::object();
    if (a.activation != Activation::kNone) attributes["activation"] = to_string(a.activation);
    if (a.epsilon != 0) attributes["epsilon"] = a.epsilon;
    if (a.heads != 0) attributes["heads"] = a.heads;
    if (a.kv_heads != 0) attributes["kv_heads"] = a.kv_heads;
    if (a.head_dim != 0) attributes["head_dim"] = a.head_dim;
    if (a.scale != 0) attributes["scale"] = a.scale;
    if (a.mask != 0) attributes["mask"] = a.mask;
    if (a.cross) attributes["cross"] = true;
    if (a.max_distance != 0) {
      attributes["bidirectional"] = a.bidirectional;
      attributes["max_distance"] = a.max_distance;
    }
    if (a.pooling != Pooling::kNone) attributes["pooling"] = to_string(a.pooling);
    operators.push_back({{"op", to_string(op.op)},
                         {"name", op.name},
                         {"layer", op.layer},
                         {"inputs", op.inputs},
                         {"outputs", op.outputs},
                         {"attributes", std::move(attributes)}});
  }
  json["fingerprint"] = fingerprint().hex();
  return json.dump();
}

}  // namespace stof::graph
