#include "model/bert_weights.h"

#include <string>
#include <utility>

#include <fmt/core.h>

#include "model/bert_loader.h"
#include "model/modernbert.h"

namespace stof::model {
namespace {

BertWeights::Layer load_layer(BertLoader& load, const BertNames& names, std::int64_t number,
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
  if (config.family == BertFamily::kModernBert) {
    load_modernbert_weights(config, weights);
    return weights;
  }
  BertLoader load(weights.checkpoint, weights.converted,
                  BertLoader::find_prefix(weights.checkpoint, names));
  const std::int64_t hidden = config.hidden_size;
  weights.word_embeddings =
      load.tensor(std::string(names.word_embeddings), {config.vocab_size, hidden});
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

BertHeadWeights load_bert_head_weights(Checkpoint checkpoint, const BertConfig& config) {
  const BertNames& names = names_of(config.family);
  const auto named = [](std::string_view name) { return std::string(name); };
  const std::int64_t hidden = config.hidden_size, vocab = config.vocab_size;
  BertHeadWeights weights;
  weights.checkpoint = std::move(checkpoint);
  BertLoader load(weights.checkpoint, weights.converted, "");
  const bool modern = config.family == BertFamily::kModernBert;
  const bool decoder_bias = !modern || config.modern.decoder_bias;
  weights.dense =
      load.dense(named(names.head.dense), hidden, hidden, !modern || config.modern.head_bias);
  weights.norm = load.norm(named(names.head.norm), hidden, !modern || config.modern.norm_bias);
  if (config.tied_head) {
    BertLoader tables(weights.checkpoint, weights.converted,
                      BertLoader::find_prefix(weights.checkpoint, names));
    weights.decoder = {
        tables.tensor(named(names.word_embeddings), {vocab, hidden}),
        decoder_bias ? load.tensor(named(names.head.tied_bias), {vocab}) : TensorView{}};
  } else {
    weights.decoder = load.dense(named(names.head.decoder), hidden, vocab, decoder_bias);
  }
  return weights;
}

}  // namespace stof::model
