#include "model/gpt2_config.h"

#include <array>

#include "core/check.h"
#include "core/file.h"
#include "model/decoder_fields.h"

namespace stof::model {
namespace {

graph::Activation read_activation(const JsonFields& fields) {
  using enum graph::Activation;
  // Names as in transformers' ACT2FN; several stand for one function.
  static constexpr std::array<std::pair<std::string_view, graph::Activation>, 8> kKnown = {{
      {"gelu_new", kGeluTanh},
      {"gelu_fast", kGeluTanh},
      {"gelu_pytorch_tanh", kGeluTanh},
      {"gelu", kGeluErf},
      {"gelu_python", kGeluErf},
      {"relu", kRelu},
      {"silu", kSilu},
      {"swish", kSilu},
  }};
  const std::string name = fields.string("activation_function", "gelu_new");
  std::string names;
  for (const auto& [known, activation] : kKnown) {
    if (name == known) return activation;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  fields.refuse("activation_function", "one of " + names);
}

/// `reorder_and_upcast_attn` computes the same in another order: it needs no refusal.
void refuse_gpt2_variants(const JsonFields& fields) {
  if (fields.string("model_type") != "gpt2") fields.refuse("model_type", "\"gpt2\"");
  for (const char* name :
       {"scale_attn_by_inverse_layer_idx", "add_cross_attention", "is_encoder_decoder"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  if (fields.has("quantization_config")) fields.refuse("quantization_config", "none");
  if (fields.has("pruned_heads") && !fields.find("pruned_heads")->empty())
    fields.refuse("pruned_heads", "none");
}

}  // namespace

Gpt2Config parse_gpt2_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  refuse_gpt2_variants(fields);
  Gpt2Config config;
  // Sizes that a file leaves out are those of the smallest GPT-2.
  config.hidden_size = fields.integer("n_embd", 1, kMaxSize, 768);
  config.num_layers = fields.integer("n_layer", 1, kMaxLayers, 12);
  config.num_heads = fields.integer("n_head", 1, kMaxSize, 12);
  if (config.hidden_size % config.num_heads != 0)
    fields.fail("n_head", fmt::format("a divisor of {}, n_embd", config.hidden_size));
  config.intermediate_size = fields.integer("n_inner", 1, kMaxSize, 4 * config.hidden_size);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize, 50257);
  config.max_positions = fields.integer("n_positions", 1, kMaxPositions, 1024);
  config.layer_norm_eps = static_cast<float>(fields.number("layer_norm_epsilon", 0, 1, 1e-5));
  config.activation = read_activation(fields);
  config.scaled_attention = fields.boolean("scale_attn_weights", true);
  config.tied_head = fields.boolean("tie_word_embeddings", true);
  config.end_tokens = read_end_tokens(fields);
  return config;
}

Gpt2Config load_gpt2_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Gpt2Config config = parse_gpt2_config(read_text_file(path, kMaxConfigBytes), path);
  read_generation_config(folder, &config.end_tokens);
  return config;
}

}  // namespace stof::model
