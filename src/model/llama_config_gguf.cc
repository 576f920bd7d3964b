// GGUF metadata -> LlamaConfig.

#include <algorithm>
#include <array>

#include "core/check.h"
#include "model/llama_fields.h"

namespace stof::model {
namespace {

/// Fields of an architecture in GGUF metadata, without the prefix "llama.".
constexpr std::array<std::string_view, 19> kGgufFields = {"block_count",
                                                          "context_length",
                                                          "embedding_length",
                                                          "feed_forward_length",
                                                          "attention.head_count",
                                                          "attention.head_count_kv",
                                                          "attention.key_length",
                                                          "attention.value_length",
                                                          "attention.layer_norm_rms_epsilon",
                                                          "rope.freq_base",
                                                          "rope.dimension_count",
                                                          "rope.scaling.type",
                                                          "rope.scaling.factor",
                                                          "rope.scaling.original_context_length",
                                                          "rope.scaling.finetuned",
                                                          "rope.scale_linear",
                                                          "vocab_size",
                                                          "expert_count",
                                                          "expert_used_count"};

}  // namespace

Json gguf_architecture_fields(const Json& settings, const std::string& file,
                              const std::string& architecture,
                              std::span<const std::string_view> known) {
  Json own = Json::object();
  const std::string prefix = architecture + ".";
  for (const auto& [key, value] : settings.items()) {
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    if (std::ranges::find(known, name) == known.end())
      JsonFields(settings, file).refuse(key.c_str(), "no such field");
    own[name] = value;
  }
  return own;
}

RopeConfig read_gguf_rope(const JsonFields& fields) {
  RopeConfig rope;
  rope.theta = fields.number("rope.freq_base", 1, 1e12, rope.theta);
  const std::string type = fields.string("rope.scaling.type", "none");
  if (type != "none" && type != "linear")
    fields.refuse("rope.scaling.type", "\"none\" or \"linear\"");
  const double factor =
      fields.number("rope.scaling.factor", 0, 1e6, fields.number("rope.scale_linear", 0, 1e6, 1));
  if (factor <= 0) fields.fail("rope.scaling.factor", "a number above 0");
  if (factor != 1 && type == "none" && fields.has("rope.scaling.type"))
    fields.fail("rope.scaling.factor", "1 without scaling");
  if (factor != 1) rope.scaling = RopeConfig::Scaling::kLinear;
  rope.factor = factor;
  return rope;
}

std::vector<std::int32_t> read_gguf_end_tokens(const JsonFields& metadata) {
  std::vector<std::int32_t> ids;
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (metadata.has(name))
      ids.push_back(static_cast<std::int32_t>(metadata.integer(name, 0, kMaxId)));
  return ids;
}

LlamaConfig read_gguf_llama_config(const Json& settings, const std::string& file) {
  const JsonFields all(settings, file);
  LlamaConfig config;
  config.family = all.string("general.architecture");
  if (config.family != "llama" && config.family != "qwen2")
    all.refuse("general.architecture", "\"llama\" or \"qwen2\"");
  const Json own = gguf_architecture_fields(settings, file, config.family, kGgufFields);
  const JsonFields fields(own, file + ": " + config.family);
  for (const char* name : {"expert_count", "expert_used_count"})
    if (fields.integer(name, 0, kMaxSize, 0) != 0) fields.refuse(name, "0");
  config.hidden_size = fields.integer("embedding_length", 1, kMaxSize);
  config.num_layers = fields.integer("block_count", 1, kMaxLayers);
  read_heads(fields, {"attention.head_count", "attention.head_count_kv", "attention.key_length"},
             config);
  for (const char* name : {"attention.value_length", "rope.dimension_count"})
    if (fields.integer(name, 1, kMaxSize, config.head_dim) != config.head_dim)
      fields.refuse(name, fmt::format("{}, the size of a head", config.head_dim));
  config.intermediate_size = fields.integer("feed_forward_length", 1, kMaxSize);
  const auto num_tokens = static_cast<std::int64_t>(all.array("tokenizer.ggml.tokens").size());
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize, num_tokens);
  config.max_positions = fields.integer("context_length", 1, kMaxPositions);
  config.rms_norm_eps =
      static_cast<float>(fields.number("attention.layer_norm_rms_epsilon", 0, 1, -1));
  if (config.rms_norm_eps < 0)
    fields.fail("attention.layer_norm_rms_epsilon", "a number from 0 to 1");
  config.rope = read_gguf_rope(fields);
  config.windows.assign(static_cast<std::size_t>(config.num_layers), 0);
  config.end_tokens = read_gguf_end_tokens(all);
  return config;
}

}  // namespace stof::model
