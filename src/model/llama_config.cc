#include "model/llama_config.h"

#include <algorithm>

#include "core/check.h"
#include "core/file.h"
#include "model/llama_fields.h"

namespace stof::model {
namespace {

/// Fields by which forks and wrappers of these families compute something else.
void refuse_llama_variants(const JsonFields& fields) {
  for (const char* name :
       {"quantization_config", "dual_chunk_attention_config", "attention_chunk_size",
        "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar",
        "num_local_experts", "num_experts", "text_config", "clip_qkv"})
    if (fields.has(name)) fields.refuse(name, "none");
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "use_qk_norm",
                           "rope_interleaved", "use_bidirectional_attention"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  for (const char* name : {"partial_rotary_factor", "logit_scale", "logits_scaling",
                           "embedding_multiplier", "residual_multiplier"})
    if (fields.number(name, -1e9, 1e9, 1) != 1) fields.refuse(name, "1");
  // Slices the products for other roundings, not for other numbers; no file in use has it.
  if (fields.integer("pretraining_tp", 1, kMaxSize, 1) != 1) fields.refuse("pretraining_tp", "1");
  if (fields.string("hidden_act", "silu") != "silu") fields.refuse("hidden_act", "\"silu\"");
}

std::string read_family(const JsonFields& fields) {
  std::string family = fields.string("model_type");
  if (family != "llama" && family != "mistral" && family != "qwen2")
    fields.refuse("model_type",
                  "\"llama\", \"mistral\" or \"qwen2\" (or \"gemma3_text\", \"gpt2\")");
  return family;
}

/// Qwen 2: which layers have a window is told by layer_types or, before, by max_window_layers,
/// which is the first layer that has one.
void read_qwen2_windows(const JsonFields& fields, std::int64_t window, LlamaConfig& config) {
  if (!fields.boolean("use_sliding_window", false)) window = 0;
  const std::int64_t first = fields.integer("max_window_layers", 0, kMaxLayers, 28);
  const bool listed = fields.has("layer_types");
  if (listed && fields.array("layer_types").size() != config.windows.size())
    fields.fail("layer_types", fmt::format("{} names, one a layer", config.windows.size()));
  for (std::size_t i = 0; i < config.windows.size(); ++i) {
    bool local = static_cast<std::int64_t>(i) >= first;
    if (listed) {
      const Json& type = fields.array("layer_types")[i];
      if (type != "sliding_attention" && type != "full_attention")
        fields.refuse("layer_types", "\"sliding_attention\" and \"full_attention\"");
      local = type == "sliding_attention";
      if (local && window == 0) fields.fail("layer_types", "no window without use_sliding_window");
    }
    config.windows[i] = local ? window : 0;
  }
}

void read_windows(const JsonFields& fields, const Json& json, LlamaConfig& config) {
  config.windows.assign(static_cast<std::size_t>(config.num_layers), 0);
  if (config.family != "qwen2" && fields.has("layer_types"))
    for (const Json& type : fields.array("layer_types"))
      if (config.family == "mistral" || type != "full_attention")
        fields.refuse("layer_types", "none");
  if (config.family == "llama") {
    if (fields.has("sliding_window")) fields.refuse("sliding_window", "null");
    return;
  }
  // Null is no window, but a file without the field has transformers' default.
  constexpr const char* kName = "sliding_window";
  const bool is_null = json.contains(kName) && !fields.has(kName);
  const std::int64_t window = is_null ? 0 : fields.integer(kName, 1, kMaxPositions, 4096);
  if (config.family == "qwen2") {
    read_qwen2_windows(fields, window, config);
  } else {
    std::fill(config.windows.begin(), config.windows.end(), window);
  }
}

}  // namespace

void read_heads(const JsonFields& fields, const HeadFields& names, LlamaConfig& config) {
  config.num_heads = fields.integer(names.heads, 1, kMaxSize);
  config.num_kv_heads = fields.integer(names.kv_heads, 1, kMaxSize, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0)
    fields.fail(names.kv_heads,
                fmt::format("a divisor of {}, the number of heads", config.num_heads));
  if (fields.has(names.head_dim)) {
    config.head_dim = fields.integer(names.head_dim, 1, kMaxSize);
  } else {
    if (config.hidden_size % config.num_heads != 0)
      fields.fail(names.heads, fmt::format("a divisor of {}, the hidden size", config.hidden_size));
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0) fields.refuse(names.head_dim, "an even number");
}

LlamaConfig parse_llama_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  LlamaConfig config;
  config.family = read_family(fields);
  refuse_llama_variants(fields);
  config.hidden_size = fields.integer("hidden_size", 1, kMaxSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  read_heads(fields, {"num_attention_heads", "num_key_value_heads", "head_dim"}, config);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  config.rope = read_rope(fields);
  config.rope.frequencies(config.head_dim);  // whose factors are one for each pair
  config.tied_head = fields.boolean("tie_word_embeddings", false);
  if (config.family == "llama") {
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.mlp_bias = fields.boolean("mlp_bias", false);
  } else {
    // Qwen 2 has them without a field; neither family reads one.
    config.qkv_bias = config.family == "qwen2";
    for (const char* name : {"attention_bias", "mlp_bias"})
      if (fields.boolean(name, false)) fields.refuse(name, "false");
  }
  read_windows(fields, json, config);
  config.end_tokens = read_end_tokens(fields);
  return config;
}

LlamaConfig load_llama_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  LlamaConfig config = parse_llama_config(read_text_file(path, kMaxConfigBytes), path);
  read_generation_config(folder, &config.end_tokens);
  return config;
}

}  // namespace stof::model
