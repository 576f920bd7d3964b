// A BERT checkpoint's tensors under the names of its graph.

#include <cstring>
#include <initializer_list>
#include <utility>

#include "core/check.h"
#include "core/text.h"
#include "model/bert_graph.h"

namespace stof::model {
namespace {

class Binder {
 public:
  explicit Binder(const graph::Graph& graph) : graph_(graph) {}

  void bind(const std::string& name, const TensorView& tensor) {
    const graph::ValueId id = graph_.find(name);
    STOF_CHECK(id != graph::kNoId, kInvalidArgument,
               "BERT graph: expected a weight {}, got none; was it built of the same config.json?",
               quote_text(name));
    const graph::Value& value = graph_.value(id);
    STOF_CHECK(tensor.shape == value.shape, kInvalidArgument,
               "BERT graph: weight {}: expected {}, got {}", quote_text(name),
               value.shape.to_string(), tensor.shape.to_string());
    result_.values[id] =
        tensor.dtype == value.dtype ? tensor : keep(Tensor::converted(tensor, value.dtype));
  }

  void bind(const std::string& name, const BertWeights::Dense& dense) {
    bind(name + ".weight", dense.weight);
    bind(name + ".bias", dense.bias);
  }

  void bind(const std::string& name, const BertWeights::Norm& norm) {
    bind(name + ".gamma", norm.gamma);
    bind(name + ".beta", norm.beta);
  }

  /// Bound one below the other: one product instead of three.
  void bind_stacked(const std::string& name, std::initializer_list<TensorView> parts) {
    Dims shape = parts.begin()->shape;
    for (const TensorView* part = parts.begin() + 1; part != parts.end(); ++part)
      shape[0] += part->shape[0];
    Tensor stacked(DType::kFloat32, shape);
    auto* out = static_cast<std::byte*>(stacked.data());
    for (const TensorView& part : parts) {
      const auto bytes = static_cast<std::size_t>(num_elements(part.shape)) * sizeof(float);
      std::memcpy(out, part.data, bytes);
      out += bytes;
    }
    bind(name, keep(std::move(stacked)));
  }

  GraphWeights take() {
    for (const graph::ValueId id : graph_.of_kind(graph::ValueKind::kWeight))
      STOF_CHECK(result_.values.contains(id), kInvalidArgument,
                 "BERT graph: weight {}: expected a tensor of the checkpoint, got none; was it "
                 "built of the same config.json?",
                 quote_text(graph_.value(id).name));
    return std::move(result_);
  }

 private:
  TensorView keep(Tensor tensor) {
    result_.owned.push_back(std::move(tensor));
    return std::as_const(result_.owned.back()).view();
  }

  const graph::Graph& graph_;
  GraphWeights result_;
};

}  // namespace

GraphWeights bind_bert_weights(const graph::Graph& graph, const BertWeights& weights) {
  Binder binder(graph);
  binder.bind("word_embeddings", weights.word_embeddings);
  binder.bind("position_embeddings", weights.position_embeddings);
  binder.bind("segment_embeddings", weights.segment_embeddings);
  binder.bind("embedding_norm", weights.embedding_norm);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const BertWeights::Layer& layer = weights.layers[i];
    const std::string name = fmt::format("layer.{}.", i);
    binder.bind_stacked(name + "query_key_value.weight",
                        {layer.query.weight, layer.key.weight, layer.value.weight});
    binder.bind_stacked(name + "query_key_value.bias",
                        {layer.query.bias, layer.key.bias, layer.value.bias});
    binder.bind(name + "attention_output", layer.attention_output);
    binder.bind(name + "attention_norm", layer.attention_norm);
    binder.bind(name + "intermediate", layer.intermediate);
    binder.bind(name + "output", layer.output);
    binder.bind(name + "output_norm", layer.output_norm);
  }
  return binder.take();
}

}  // namespace stof::model
