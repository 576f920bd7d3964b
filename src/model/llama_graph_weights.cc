// A LLaMA checkpoint's tensors under the names of its graph.

#include <fmt/core.h>

#include <array>

#include "model/llama_graph.h"

namespace stof::model {
namespace {

class LlamaBinder : public GraphWeightBinder {
 public:
  explicit LlamaBinder(const graph::Graph& graph) : GraphWeightBinder(graph, "LLaMA graph") {}
  using GraphWeightBinder::bind;

  void bind(const std::string& name, LlamaWeights::Dense dense) {
    bind(name + ".weight", std::move(dense.weight));
    if (!dense.bias.empty()) bind(name + ".bias", std::move(dense.bias));
  }

  void bind_stacked(const std::string& name, const LlamaWeights::Dense& upper,
                    const LlamaWeights::Dense& lower) {
    GraphWeightBinder::bind_stacked(name + ".weight",
                                    std::array{upper.weight.view(), lower.weight.view()});
    if (!upper.bias.empty())
      GraphWeightBinder::bind_stacked(name + ".bias",
                                      std::array{upper.bias.view(), lower.bias.view()});
  }
};

}  // namespace

GraphWeights bind_llama_weights(const graph::Graph& graph, const LlamaWeights& weights) {
  LlamaBinder binder(graph);
  binder.bind_filled_up("embeddings", weights.embeddings());
  const std::vector<float> frequencies = weights.rope_frequencies();
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  binder.bind("rope.frequencies", Tensor::copy_of({frequencies.data(), DType::kFloat32, {pairs}}));
  const bool joined = binder.has("layer.0.gate_up.weight");
  for (std::int64_t i = 0; i < graph.num_layers(); ++i) {
    LlamaWeights::Layer layer = weights.layer(i);
    const std::string name = fmt::format("layer.{}.", i);
    binder.bind(name + "attention_norm.gamma", std::move(layer.attention_norm));
    binder.bind(name + "mlp_norm.gamma", std::move(layer.mlp_norm));
    binder.bind(name + "query_key_value", std::move(layer.query_key_value));
    binder.bind(name + "attention_output", std::move(layer.attention_output));
    if (joined) {
      binder.bind_stacked(name + "gate_up", layer.gate, layer.up);
    } else {
      binder.bind(name + "gate", std::move(layer.gate));
      binder.bind(name + "up", std::move(layer.up));
    }
    binder.bind(name + "down", std::move(layer.down));
  }
  binder.bind("final_norm.gamma", weights.final_norm());
  if (binder.has("head.weight")) binder.bind_filled_up("head.weight", weights.head());
  return binder.take();
}

}  // namespace stof::model
