#include "model/t5_config.h"

#include <array>

#include "core/check.h"
#include "core/file.h"
#include "model/decoder_fields.h"

namespace stof::model {
namespace {

/// "relu", or "gated-gelu" for two products; "gated-gelu" means the tanh form, "gelu" the exact
/// one.
void read_feed_forward(const JsonFields& fields, T5Config& config) {
  using enum graph::Activation;
  // Names as in transformers' ACT2FN; several stand for one function.
  static constexpr std::array<std::pair<std::string_view, graph::Activation>, 8> kKnown = {{
      {"relu", kRelu},
      {"gelu_new", kGeluTanh},
      {"gelu_fast", kGeluTanh},
      {"gelu_pytorch_tanh", kGeluTanh},
      {"gelu", kGeluErf},
      {"gelu_python", kGeluErf},
      {"silu", kSilu},
      {"swish", kSilu},
  }};
  constexpr const char* kName = "feed_forward_proj";
  constexpr std::string_view kGated = "gated-";
  const std::string given = fields.string(kName, config.family == "mt5" ? "gated-gelu" : "relu");
  config.gated = given.starts_with(kGated);
  std::string_view name = given;
  if (config.gated) name.remove_prefix(kGated.size());
  if (config.gated && name == "gelu") name = "gelu_new";
  std::string names;
  for (const auto& [known, activation] : kKnown) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
    if (name != known) continue;
    config.activation = activation;
    return;
  }
  fields.refuse(kName, "one of " + names + ", or \"gated-\" in front of one");
}

/// Whether the decoder's output is scaled in front of the head. T5 said it by tying the head, which
/// transformers took as the sign; its newer files have a field of its own.
bool read_scaled_head(const JsonFields& fields, const std::string& family) {
  if (family == "mt5") return false;
  return fields.boolean("scale_decoder_outputs", fields.boolean("tie_word_embeddings", true));
}

std::int32_t read_start_token(const JsonFields& fields, std::int32_t fallback) {
  return static_cast<std::int32_t>(fields.integer("decoder_start_token_id", 0, kMaxId, fallback));
}

void read_tasks(const JsonFields& fields, T5Config& config) {
  constexpr const char* kName = "task_specific_params";
  const Json* const tasks = fields.find(kName);
  if (tasks == nullptr) return;
  if (!tasks->is_object()) fields.fail(kName, "an object");
  for (const auto& [name, value] : tasks->items()) {
    const JsonFields task(value, fmt::format("{}: {}: {}", fields.where(), kName, name));
    config.tasks.push_back(
        {name, task.string("prefix", ""), task.integer("max_length", 1, kMaxPositions, 0)});
  }
}

void refuse_variants(const JsonFields& fields) {
  for (const char* name : {"quantization_config"})
    if (fields.has(name)) fields.refuse(name, "none");
  if (!fields.boolean("is_encoder_decoder", true)) fields.refuse("is_encoder_decoder", "true");
  if (fields.boolean("is_decoder", false)) fields.refuse("is_decoder", "false");
  if (fields.has("pruned_heads") && !fields.find("pruned_heads")->empty())
    fields.refuse("pruned_heads", "none");
}

}  // namespace

T5Config parse_t5_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  T5Config config;
  config.family = fields.string("model_type");
  if (config.family != "t5" && config.family != "mt5")
    fields.refuse("model_type", "\"t5\" or \"mt5\"");
  refuse_variants(fields);
  const bool mt5 = config.family == "mt5";
  // Sizes that a file leaves out are those of the smallest model.
  config.hidden_size = fields.integer("d_model", 1, kMaxSize, 512);
  config.head_dim = fields.integer("d_kv", 1, kMaxSize, 64);
  config.num_heads = fields.integer("num_heads", 1, kMaxSize, mt5 ? 6 : 8);
  config.inner_size = fields.integer("d_ff", 1, kMaxSize, mt5 ? 1024 : 2048);
  config.encoder_layers = fields.integer("num_layers", 1, kMaxLayers, mt5 ? 8 : 6);
  config.decoder_layers =
      fields.integer("num_decoder_layers", 1, kMaxLayers, config.encoder_layers);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize, mt5 ? 250112 : 32128);
  constexpr const char* kBuckets = "relative_attention_num_buckets";
  config.num_buckets = fields.integer(kBuckets, 4, 1 << 16, 32);
  // Half of them are for keys before the query, in the encoder half for those behind it.
  if (config.num_buckets % 2 != 0) fields.refuse(kBuckets, "an even number");
  config.max_distance = fields.integer("relative_attention_max_distance",
                                       config.num_buckets / 2 + 1, kMaxPositions, 128);
  config.layer_norm_eps = static_cast<float>(fields.number("layer_norm_epsilon", 0, 1, 1e-6));
  read_feed_forward(fields, config);
  config.scaled_head = read_scaled_head(fields, config.family);
  // transformers begins with the padding where nothing else is said.
  const auto pad = static_cast<std::int32_t>(fields.integer("pad_token_id", 0, kMaxId, 0));
  config.start_token = read_start_token(fields, pad);
  config.end_tokens = read_end_tokens(fields);
  if (!json.contains("eos_token_id")) config.end_tokens = {1};
  read_tasks(fields, config);
  return config;
}

T5Config load_t5_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  T5Config config = parse_t5_config(read_text_file(path, kMaxConfigBytes), path);
  read_generation_config(folder, &config.end_tokens);
  const std::string generation = folder + "/generation_config.json";
  if (file_exists(generation)) {
    const Json json = read_json_file(generation, kMaxConfigBytes);
    config.start_token = read_start_token(JsonFields(json, generation), config.start_token);
  }
  return config;
}

}  // namespace stof::model
