#include "model/llama_weights.h"

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "core/check.h"

namespace stof::model {
namespace {

/// One below the other; nothing where the parts are empty.
Tensor stacked(std::span<const Tensor* const> parts) {
  std::int64_t rows = 0;
  for (const Tensor* part : parts) rows += part->empty() ? 0 : part->shape()[0];
  if (rows == 0) return {};
  const Dims& shape = parts[0]->shape();
  Tensor all(DType::kFloat32, shape.rank() == 1 ? Dims({rows}) : Dims({rows, shape[1]}));
  auto* next = static_cast<std::byte*>(all.data());
  for (const Tensor* part : parts) {
    std::memcpy(next, part->data(), part->bytes());
    next += part->bytes();
  }
  return all;
}

LlamaWeights::Dense stacked(std::span<const LlamaWeights::Dense> parts) {
  std::vector<const Tensor*> weights, biases;
  for (const LlamaWeights::Dense& part : parts) {
    weights.push_back(&part.weight);
    biases.push_back(&part.bias);
  }
  return {stacked(weights), stacked(biases)};
}

/// Row 2 j + s of each head becomes row s * head_dim / 2 + j.
Tensor halves_apart(const Tensor& interleaved, std::int64_t head_dim) {
  Tensor result(DType::kFloat32, interleaved.shape());
  const std::int64_t rows = interleaved.shape()[0];
  const std::size_t row_bytes = interleaved.bytes() / static_cast<std::size_t>(rows);
  const auto* from = static_cast<const std::byte*>(interleaved.data());
  auto* to = static_cast<std::byte*>(result.data());
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t within = r % head_dim;
    const std::int64_t target = r - within + (within % 2) * head_dim / 2 + within / 2;
    std::memcpy(to + static_cast<std::size_t>(target) * row_bytes,
                from + static_cast<std::size_t>(r) * row_bytes, row_bytes);
  }
  return result;
}

using Name = LlamaWeights::Name;
constexpr Name kEmbeddings = {"embed_tokens.weight", "token_embd.weight"};
constexpr Name kFinalNorm = {"norm.weight", "output_norm.weight"};
constexpr Name kHead = {"lm_head.weight", "output.weight"};
constexpr Name kRopeFactors = {"", "rope_freqs.weight"};
constexpr Name kAttentionNorm = {"input_layernorm", "attn_norm"};
constexpr Name kQuery = {"self_attn.q_proj", "attn_q"};
constexpr Name kKey = {"self_attn.k_proj", "attn_k"};
constexpr Name kValue = {"self_attn.v_proj", "attn_v"};
constexpr Name kOutput = {"self_attn.o_proj", "attn_output"};
constexpr Name kMlpNorm = {"post_attention_layernorm", "ffn_norm"};
constexpr Name kGate = {"mlp.gate_proj", "ffn_gate"};
constexpr Name kUp = {"mlp.up_proj", "ffn_up"};
constexpr Name kDown = {"mlp.down_proj", "ffn_down"};

}  // namespace

LlamaWeights::LlamaWeights(Checkpoint checkpoint, LlamaConfig& config)
    : checkpoint_(std::move(checkpoint)),
      gguf_(checkpoint_.gguf() != nullptr),
      prefix_(checkpoint_.contains(std::string("model.") + kEmbeddings.hf) ||
                      !checkpoint_.contains(kEmbeddings.hf)
                  ? "model."
                  : "") {
  if (gguf_) {
    config.tied_head = !checkpoint_.contains(kHead.gguf);
    config.qkv_bias = checkpoint_.contains(layer_name(0, kQuery, "bias"));
    config.output_bias = checkpoint_.contains(layer_name(0, kOutput, "bias"));
    config.mlp_bias = checkpoint_.contains(layer_name(0, kGate, "bias"));
  }
  config_ = config;
  check_places();
}

void LlamaWeights::check_places() const {
  const auto refuse = [this](const std::string& name, const char* field) {
    STOF_CHECK(!checkpoint_.contains(name), kCorrupt,
               "{}: tensor \"{}\": expected none of that name, by {}; the file does not belong to "
               "this configuration",
               checkpoint_.path(), name, field);
  };
  refuse(layer_name(config_.num_layers, kAttentionNorm, "weight"), "the number of layers");
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    for (const Name& name : {kQuery, kKey, kValue})
      if (!config_.qkv_bias) refuse(layer_name(i, name, "bias"), "attention_bias");
    if (!config_.output_bias) refuse(layer_name(i, kOutput, "bias"), "attention_bias");
    for (const Name& name : {kGate, kUp, kDown})
      if (!config_.mlp_bias) refuse(layer_name(i, name, "bias"), "mlp_bias");
  }
}

std::string LlamaWeights::layer_name(std::int64_t index, const Name& name,
                                     const char* suffix) const {
  return gguf_ ? fmt::format("blk.{}.{}.{}", index, name.gguf, suffix)
               : fmt::format("{}layers.{}.{}.{}", prefix_, index, name.hf, suffix);
}

LlamaWeights::Dense LlamaWeights::dense(std::int64_t index, const Name& name, std::int64_t out,
                                        std::int64_t in, bool has_bias) const {
  Dense dense;
  dense.weight = checkpoint_.float32(layer_name(index, name, "weight"), {out, in});
  if (has_bias) dense.bias = checkpoint_.float32(layer_name(index, name, "bias"), {out});
  return dense;
}

LlamaWeights::Dense LlamaWeights::heads(std::int64_t index, const Name& name,
                                        std::int64_t num_heads) const {
  Dense stored =
      dense(index, name, num_heads * config_.head_dim, config_.hidden_size, config_.qkv_bias);
  // GGUF files of this architecture turn neighbours, those of the others halves, as we do.
  if (!gguf_ || config_.family != "llama") return stored;
  stored.weight = halves_apart(stored.weight, config_.head_dim);
  if (!stored.bias.empty()) stored.bias = halves_apart(stored.bias, config_.head_dim);
  return stored;
}

Tensor LlamaWeights::embeddings() const {
  return checkpoint_.float32(gguf_ ? kEmbeddings.gguf : prefix_ + kEmbeddings.hf,
                             {config_.vocab_size, config_.hidden_size});
}

Tensor LlamaWeights::final_norm() const {
  return checkpoint_.float32(gguf_ ? kFinalNorm.gguf : prefix_ + kFinalNorm.hf,
                             {config_.hidden_size});
}

Tensor LlamaWeights::head() const {
  if (config_.tied_head) return embeddings();
  return checkpoint_.float32(gguf_ ? kHead.gguf : kHead.hf,
                             {config_.vocab_size, config_.hidden_size});
}

LlamaWeights::Layer LlamaWeights::layer(std::int64_t index) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const std::int64_t kv_width = config_.num_kv_heads * config_.head_dim;
  const std::array<Dense, 3> projections = {
      heads(index, kQuery, config_.num_heads), heads(index, kKey, config_.num_kv_heads),
      dense(index, kValue, kv_width, hidden, config_.qkv_bias)};
  Layer layer;
  layer.attention_norm = checkpoint_.float32(layer_name(index, kAttentionNorm, "weight"), {hidden});
  layer.mlp_norm = checkpoint_.float32(layer_name(index, kMlpNorm, "weight"), {hidden});
  layer.query_key_value = stacked(projections);
  layer.attention_output =
      dense(index, kOutput, hidden, config_.num_heads * config_.head_dim, config_.output_bias);
  layer.gate = dense(index, kGate, inner, hidden, config_.mlp_bias);
  layer.up = dense(index, kUp, inner, hidden, config_.mlp_bias);
  layer.down = dense(index, kDown, hidden, inner, config_.mlp_bias);
  return layer;
}

std::vector<float> LlamaWeights::rope_frequencies() const {
  std::vector<float> frequencies = config_.rope.frequencies(config_.head_dim);
  if (!gguf_ || !checkpoint_.contains(kRopeFactors.gguf)) return frequencies;
  const Tensor factors = checkpoint_.float32(kRopeFactors.gguf, {config_.head_dim / 2});
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors.as<float>()[i];
  return frequencies;
}

}  // namespace stof::model
