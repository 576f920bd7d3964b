#include "model/bert_encoder.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/check.h"

namespace stof::model {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const float* floats(const TensorView& view) { return static_cast<const float*>(view.data); }

/// Rows of all parts, one below the other.
Tensor stack_rows(std::initializer_list<TensorView> parts) {
  std::int64_t rows = 0;
  for (const TensorView& part : parts) rows += part.shape[0];
  Dims shape = parts.begin()->shape;
  shape[0] = rows;
  Tensor stacked(DType::kFloat32, shape);
  float* out = stacked.as<float>().data();
  for (const TensorView& part : parts) {
    const auto size = static_cast<std::size_t>(num_elements(part.shape));
    std::memcpy(out, part.data, size * sizeof(float));
    out += size;
  }
  return stacked;
}

}  // namespace

BertEncoder::BertEncoder(BertWeights weights, const BertConfig& config)
    : config_(config), weights_(std::move(weights)) {
  for (const BertWeights::Layer& layer : weights_.layers) layers_.push_back(make_layer(layer));
}

cpu::LayerNorm BertEncoder::make_norm(const BertWeights::Norm& norm) const {
  return {floats(norm.gamma), floats(norm.beta), config_.hidden_size, config_.layer_norm_eps};
}

BertEncoder::Layer BertEncoder::make_layer(const BertWeights::Layer& w) const {
  const Tensor weight = stack_rows({w.query.weight, w.key.weight, w.value.weight});
  const Tensor bias = stack_rows({w.query.bias, w.key.bias, w.value.bias});
  const auto residual = [](const BertWeights::Dense& dense) {
    return cpu::Linear(dense.weight, dense.bias, cpu::Activation::kNone, cpu::Store::kAdd);
  };
  return {cpu::Linear(weight.view(), bias.view()),
          residual(w.attention_output),
          make_norm(w.attention_norm),
          cpu::Linear(w.intermediate.weight, w.intermediate.bias, config_.activation),
          residual(w.output),
          make_norm(w.output_norm)};
}

Tensor BertEncoder::forward(const PackedTexts& texts, const mask::Mask& mask,
                            EncoderTiming& timing) const {
  const std::int64_t tokens = texts.num_tokens(), hidden = config_.hidden_size;
  const std::int64_t heads = config_.num_heads, head_dim = config_.head_dim();
  texts.validate(config_);

  const auto plan_start = Clock::now();
  AttentionProblem problem;
  problem.num_heads_q = problem.num_heads_kv = heads;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  const VarlenPlan plan = plan_varlen_attention(problem, mask, texts.offsets, texts.offsets);
  timing.plan += seconds_since(plan_start);

  Tensor states(DType::kFloat32, {tokens, hidden});
  Tensor projected(DType::kFloat32, {tokens, 3 * hidden});
  Tensor context(DType::kFloat32, {tokens, hidden});
  Tensor inner(DType::kFloat32, {tokens, config_.intermediate_size});
  float* const x = states.as<float>().data();
  float* const qkv = projected.as<float>().data();
  const Dims per_head = {tokens, heads, head_dim}, strides = {3 * hidden, head_dim, 1};
  AttentionTensors operands;
  operands.q = {qkv, DType::kFloat32, per_head, strides};
  operands.k = {qkv + hidden, DType::kFloat32, per_head, strides};
  operands.v = {qkv + 2 * hidden, DType::kFloat32, per_head, strides};
  operands.out = {context.data(), DType::kFloat32, per_head};

  cpu::embed_tokens({floats(weights_.word_embeddings), floats(weights_.position_embeddings),
                     floats(weights_.segment_embeddings), make_norm(weights_.embedding_norm)},
                    texts.ids, texts.positions, x);
  for (const Layer& layer : layers_) {
    layer.query_key_value.run(x, tokens, qkv);
    const auto attention_start = Clock::now();
    run_varlen_attention(plan, operands);
    timing.attention += seconds_since(attention_start);
    layer.attention_output.run(context.as<float>().data(), tokens, x);
    layer.attention_norm.rows(x, tokens);
    layer.intermediate.run(x, tokens, inner.as<float>().data());
    layer.output.run(inner.as<float>().data(), tokens, x);
    layer.output_norm.rows(x, tokens);
  }
  return states;
}

Tensor BertEncoder::pooled(const PackedTexts& texts, const mask::Mask& mask, cpu::Pooling pooling,
                           EncoderTiming& timing) const {
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
