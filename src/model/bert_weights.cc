#include "model/bert_weights.h"

#include <string>
#include <utility>

#include "core/check.h"
#include "model/bert_family.h"

namespace stof::model {
namespace {

std::string find_prefix(const Checkpoint& checkpoint, const BertNames& names) {
  for (const std::string_view prefix : names.prefixes)
    if (checkpoint.find(std::string(prefix) + "embeddings.word_embeddings.weight") != nullptr)
      return std::string(prefix);
  return "";  // where that is wrong too, the first lookup names what is missing
}

class Loader {
 public:
  Loader(BertWeights& weights, const BertNames& names)
      : weights_(weights), prefix_(find_prefix(weights.checkpoint, names)) {}

  TensorView tensor(const std::string& name, const Dims& shape) {
    const TensorView& view = weights_.checkpoint.require(prefix_ + name, shape);
    STOF_CHECK(view.dtype == DType::kFloat32 || view.dtype == DType::kFloat16 ||
                   view.dtype == DType::kBFloat16,
               kUnsupported, "{}: tensor \"{}\": expected float32, float16 or bfloat16, got {}",
               weights_.checkpoint.path(), prefix_ + name, to_string(view.dtype));
    if (view.dtype == DType::kFloat32 && view.is_aligned()) return view;
    weights_.converted.push_back(Tensor::converted(view, DType::kFloat32));
    return std::as_const(weights_.converted.back()).view();
  }

  BertWeights::Dense dense(const std::string& name, std::int64_t in, std::int64_t out) {
    return {tensor(name + ".weight", {out, in}), tensor(name + ".bias", {out})};
  }

  BertWeights::Norm norm(const std::string& name, std::int64_t width) {
    const bool early = weights_.checkpoint.find(prefix_ + name + ".gamma") != nullptr;
    return {tensor(name + (early ? ".gamma" : ".weight"), {width}),
            tensor(name + (early ? ".beta" : ".bias"), {width})};
  }

 private:
  BertWeights& weights_;
  std::string prefix_;
};

BertWeights::Layer load_layer(Loader& load, const BertNames& names, std::int64_t number,
                              const BertConfig& config) {
  const std::int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const auto name = [&](std::string_view part) {
    return fmt::format("{}{}.{}", names.layer, number, part);
  };
  BertWeights::Layer layer;
  layer.query = load.dense(name(names.query), hidden, hidden);
  layer.key = load.dense(name(names.key), hidden, hidden);
  layer.value = load.dense(name(names.value), hidden, hidden);
  layer.attention_output = load.dense(name(names.attention_output), hidden, hidden);
  layer.attention_norm = load.norm(name(names.attention_norm), hidden);
  layer.intermediate = load.dense(name(names.intermediate), hidden, intermediate);
  layer.output = load.dense(name(names.output), intermediate, hidden);
  layer.output_norm = load.norm(name(names.output_norm), hidden);
  return layer;
}

}  // namespace

BertWeights load_bert_weights(Checkpoint checkpoint, const BertConfig& config) {
  const BertNames& names = names_of(config.family);
  BertWeights weights;
  weights.checkpoint = std::move(checkpoint);
  Loader load(weights, names);
  const std::int64_t hidden = config.hidden_size;
  weights.word_embeddings =
      load.tensor("embeddings.word_embeddings.weight", {config.vocab_size, hidden});
  weights.position_embeddings =
      load.tensor("embeddings.position_embeddings.weight", {config.position_rows(), hidden});
  if (config.num_segments > 0)
    weights.segment_embeddings =
        load.tensor("embeddings.token_type_embeddings.weight", {config.num_segments, hidden});
  weights.embedding_norm = load.norm("embeddings.LayerNorm", hidden);
  for (std::int64_t i = 0; i < config.num_layers; ++i)
    weights.layers.push_back(load_layer(load, names, i, config));
  return weights;
}

}  // namespace stof::model
