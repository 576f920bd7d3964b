// A BERT checkpoint's tensors under the names of its graph.

#include <fmt/core.h>

#include <array>

#include "model/bert_graph.h"
#include "model/modernbert.h"

namespace stof::model {
namespace {

class Binder : public GraphWeightBinder {
 public:
  explicit Binder(const graph::Graph& graph) : GraphWeightBinder(graph, "BERT graph") {}
  using GraphWeightBinder::bind;

  void bind(const std::string& name, const BertWeights::Dense& dense) {
    bind(name + ".weight", dense.weight);
    bind(name + ".bias", dense.bias);
  }

  void bind(const std::string& name, const BertWeights::Norm& norm) {
    bind(name + ".gamma", norm.gamma);
    bind(name + ".beta", norm.beta);
  }
};

}  // namespace

GraphWeights bind_bert_weights(const graph::Graph& graph, const BertWeights& weights) {
  if (!weights.named.empty()) return bind_modernbert_weights(graph, weights);
  Binder binder(graph);
  binder.bind("word_embeddings", weights.word_embeddings);
  binder.bind("position_embeddings", weights.position_embeddings);
  if (weights.segment_embeddings.data != nullptr)
    binder.bind("segment_embeddings", weights.segment_embeddings);
  binder.bind("embedding_norm", weights.embedding_norm);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const BertWeights::Layer& layer = weights.layers[i];
    const std::string name = fmt::format("layer.{}.", i);
    binder.bind_stacked(name + "query_key_value.weight",
                        std::array{layer.query.weight, layer.key.weight, layer.value.weight});
    binder.bind_stacked(name + "query_key_value.bias",
                        std::array{layer.query.bias, layer.key.bias, layer.value.bias});
    binder.bind(name + "attention_output", layer.attention_output);
    binder.bind(name + "attention_norm", layer.attention_norm);
    binder.bind(name + "intermediate", layer.intermediate);
    binder.bind(name + "output", layer.output);
    binder.bind(name + "output_norm", layer.output_norm);
  }
  return binder.take();
}

}  // namespace stof::model
