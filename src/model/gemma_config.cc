#include "model/gemma_config.h"

#include <array>

#include "core/check.h"
#include "core/file.h"
#include "model/llama_fields.h"

namespace stof::model {
namespace {

constexpr double kGlobalTheta = 1e6, kLocalTheta = 1e4;
/// Every so many layers one sees all, where nothing else is said.
constexpr std::int64_t kPattern = 6;

void refuse_gemma_variants(const JsonFields& fields) {
  for (const char* name :
       {"quantization_config", "attn_logit_softcapping", "final_logit_softcapping", "num_experts"})
    if (fields.has(name)) fields.refuse(name, "null");
  for (const char* name : {"attention_bias", "use_bidirectional_attention", "is_encoder_decoder"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  constexpr const char* kActivation = "gelu_pytorch_tanh";
  if (fields.string("hidden_activation", kActivation) != kActivation)
    fields.refuse("hidden_activation", fmt::format("\"{}\"", kActivation));
}

/// One kind of layer's rotation: `kind` of "rope_parameters" (transformers 5), or `theta` and, of
/// layers that see all, "rope_scaling" (before).
RopeConfig read_kind(const JsonFields& fields, const char* kind, const char* theta,
                     double fallback) {
  const bool global = std::string_view(kind) == "full_attention";
  Json merged = Json::object();
  if (const Json* early = fields.find(theta)) merged["rope_theta"] = *early;
  if (const Json* scaling = fields.find("rope_scaling"); scaling != nullptr && global)
    merged["rope_scaling"] = *scaling;
  if (fields.has("rope_parameters")) {
    const JsonFields kinds = fields.object("rope_parameters");
    for (const auto& [name, value] : fields.find("rope_parameters")->items())
      if (name != "full_attention" && name != "sliding_attention")
        kinds.refuse(name.c_str(), "full_attention and sliding_attention alone");
    if (const Json* own = kinds.find(kind)) {
      merged["rope_parameters"] = *own;
      if (own->is_object() && !own->contains("rope_theta"))
        merged["rope_parameters"]["rope_theta"] = merged.value("rope_theta", Json(fallback));
    }
  }
  if (!merged.contains("rope_theta") && !merged.contains("rope_parameters"))
    merged["rope_theta"] = fallback;
  for (const char* name : {"max_position_embeddings", "original_max_position_embeddings"})
    if (const Json* value = fields.find(name)) merged[name] = *value;
  RopeConfig rope = read_rope(JsonFields(merged, fmt::format("{}: {}", fields.where(), kind)));
  // Layers of both kinds share the number that attention multiplies by.
  if (rope.attention_factor != 1)
    fields.refuse(fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                  "a rope_type without an attention factor (not yarn or longrope)");
  return rope;
}

/// "layer_types", or every sliding_window_pattern-th layer sees all.
void read_gemma_windows(const JsonFields& fields, GemmaConfig& config) {
  const std::int64_t pattern = fields.integer("sliding_window_pattern", 1, kMaxSize, kPattern);
  const bool listed = fields.has("layer_types");
  if (listed && static_cast<std::int64_t>(fields.array("layer_types").size()) != config.num_layers)
    fields.fail("layer_types", fmt::format("{} names, one a layer", config.num_layers));
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    bool local = (i + 1) % pattern != 0;
    if (listed) {
      const Json& type = fields.array("layer_types")[static_cast<std::size_t>(i)];
      if (type != "sliding_attention" && type != "full_attention")
        fields.refuse("layer_types", "\"sliding_attention\" and \"full_attention\"");
      local = type == "sliding_attention";
    }
    config.windows.push_back(local ? fields.integer("sliding_window", 1, kMaxPositions, 4096) : 0);
  }
}

/// Sizes that a file leaves out are the defaults of transformers' Gemma3TextConfig, as the files of
/// the models that also see images have them.
GemmaConfig read_gemma_config(const JsonFields& fields) {
  refuse_gemma_variants(fields);
  GemmaConfig config;
  config.hidden_size = fields.integer("hidden_size", 1, kMaxSize, 2304);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxLayers, 26);
  config.num_heads = fields.integer("num_attention_heads", 1, kMaxSize, 8);
  config.num_kv_heads = fields.integer("num_key_value_heads", 1, kMaxSize, 4);
  if (config.num_heads % config.num_kv_heads != 0)
    fields.fail("num_key_value_heads",
                fmt::format("a divisor of {}, the number of heads", config.num_heads));
  config.head_dim = fields.integer("head_dim", 1, kMaxSize, 256);
  if (config.head_dim % 2 != 0) fields.refuse("head_dim", "an even number");
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize, 9216);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize, 262'208);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions, 131'072);
  config.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  config.query_scalar = fields.number("query_pre_attn_scalar", 0, 1e9, 256);
  if (config.query_scalar <= 0) fields.fail("query_pre_attn_scalar", "a number above 0");
  config.global = read_kind(fields, "full_attention", "rope_theta", kGlobalTheta);
  config.local = read_kind(fields, "sliding_attention", "rope_local_base_freq", kLocalTheta);
  config.tied_head = fields.boolean("tie_word_embeddings", true);
  read_gemma_windows(fields, config);
  config.end_tokens = read_end_tokens(fields);
  return config;
}

}  // namespace

GemmaConfig parse_gemma_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  const std::string type = fields.string("model_type");
  if (type == "gemma3_text") return read_gemma_config(fields);
  if (type != "gemma3") fields.refuse("model_type", "\"gemma3_text\" or \"gemma3\"");
  GemmaConfig config = read_gemma_config(fields.object("text_config"));
  if (config.end_tokens.empty()) config.end_tokens = read_end_tokens(fields);
  config.tied_head = fields.boolean("tie_word_embeddings", config.tied_head);
  return config;
}

GemmaConfig load_gemma_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  GemmaConfig config = parse_gemma_config(read_text_file(path, kMaxConfigBytes), path);
  read_generation_config(folder, &config.end_tokens);
  return config;
}

GemmaConfig read_gguf_gemma_config(const Json& settings, const std::string& file) {
  static constexpr std::array<std::string_view, 16> kKnown = {"block_count",
                                                              "context_length",
                                                              "embedding_length",
                                                              "feed_forward_length",
                                                              "attention.head_count",
                                                              "attention.head_count_kv",
                                                              "attention.key_length",
                                                              "attention.value_length",
                                                              "attention.layer_norm_rms_epsilon",
                                                              "attention.sliding_window",
                                                              "attention.sliding_window_pattern",
                                                              "rope.freq_base",
                                                              "rope.freq_base_swa",
                                                              "rope.scaling.type",
                                                              "rope.scaling.factor",
                                                              "vocab_size"};
  const JsonFields all(settings, file);
  const Json own = gguf_architecture_fields(settings, file, "gemma3", kKnown);
  const JsonFields fields(own, file + ": gemma3");
  GemmaConfig config;
  config.hidden_size = fields.integer("embedding_length", 1, kMaxSize);
  config.num_layers = fields.integer("block_count", 1, kMaxLayers);
  config.num_heads = fields.integer("attention.head_count", 1, kMaxSize);
  config.num_kv_heads = fields.integer("attention.head_count_kv", 1, kMaxSize, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    fields.fail("attention.head_count_kv",
                fmt::format("a divisor of {}, the number of heads", config.num_heads));
  config.head_dim = fields.integer("attention.key_length", 2, kMaxSize, 256);
  if (config.head_dim % 2 != 0) fields.refuse("attention.key_length", "an even number");
  if (fields.integer("attention.value_length", 1, kMaxSize, config.head_dim) != config.head_dim)
    fields.refuse("attention.value_length", fmt::format("{}, the size of a head", config.head_dim));
  config.intermediate_size = fields.integer("feed_forward_length", 1, kMaxSize);
  const auto num_tokens = static_cast<std::int64_t>(all.array("tokenizer.ggml.tokens").size());
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize, num_tokens);
  config.max_positions = fields.integer("context_length", 1, kMaxPositions);
  config.rms_norm_eps =
      static_cast<float>(fields.number("attention.layer_norm_rms_epsilon", 0, 1, 1e-6));
  // No field tells it: of all models only the one of 62 layers has another than the head's size.
  constexpr std::int64_t kLayersOf27B = 62;
  config.query_scalar = static_cast<double>(
      config.num_layers == kLayersOf27B ? config.hidden_size / config.num_heads : config.head_dim);
  config.global = read_gguf_rope(fields);
  config.global.theta = fields.number("rope.freq_base", 1, 1e12, kGlobalTheta);
  config.local.theta = fields.number("rope.freq_base_swa", 1, 1e12, kLocalTheta);
  const std::int64_t window = fields.integer("attention.sliding_window", 1, kMaxPositions);
  const std::int64_t pattern =
      fields.integer("attention.sliding_window_pattern", 1, kMaxSize, kPattern);
  for (std::int64_t i = 0; i < config.num_layers; ++i)
    config.windows.push_back((i + 1) % pattern != 0 ? window : 0);
  config.end_tokens = read_gguf_end_tokens(all);
  return config;
}

}  // namespace stof::model
