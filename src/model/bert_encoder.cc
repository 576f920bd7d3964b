#include "model/bert_encoder.h"

namespace stof::model {
namespace {

exec::GraphOf graph_of(const BertConfig& config) {
  return [config](std::int64_t rows) { return bert_session_graph(config, rows, DType::kFloat32); };
}

}  // namespace

BertEncoder::BertEncoder(BertWeights weights, const BertConfig& config,
                         const exec::SessionOptions& options)
    : config_(config),
      weights_(std::move(weights)),
      bound_(bind_bert_weights(graph_of(config)(1), weights_)),
      session_(graph_of(config),
               std::make_shared<exec::CpuWeights>(graph_of(config)(1), bound_.values), options) {}

Tensor BertEncoder::forward(const PackedTexts& texts, const mask::MaskSet& mask,
                            EncoderTiming& timing) const {
  texts.validate(config_);
  if (texts.num_tokens() == 0) return Tensor(DType::kFloat32, {0, config_.hidden_size});
  exec::RunTiming spent;
  Tensor states = session_.run(texts.batch(mask, config_), &spent);
  timing.plan += spent.plan;
  timing.attention += spent.attention;
  return states;
}

Tensor BertEncoder::pooled(const PackedTexts& texts, const mask::MaskSet& mask,
                           cpu::Pooling pooling, EncoderTiming& timing) const {
  const Tensor states = forward(texts, mask, timing);
  const std::int64_t hidden = config_.hidden_size;
  Tensor vectors(DType::kFloat32, {texts.num_texts(), hidden});
  for (std::int64_t i = 0; i < texts.num_texts(); ++i) {
    const std::int64_t begin = texts.offsets[static_cast<std::size_t>(i)],
                       end = texts.offsets[static_cast<std::size_t>(i) + 1];
    cpu::pool_rows(pooling, states.as<float>().data() + begin * hidden, end - begin, hidden,
                   vectors.as<float>().data() + i * hidden);
  }
  return vectors;
}

}  // namespace stof::model
