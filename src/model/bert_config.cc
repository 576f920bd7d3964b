#include "model/bert_config.h"

#include <array>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/json_fields.h"

namespace stof::model {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 << 20;
/// Above any real model and far below where products of two sizes overflow.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 10'000;

cpu::Activation read_activation(const JsonFields& fields) {
  using enum cpu::Activation;
  // Names as in transformers' ACT2FN; several stand for one function.
  static constexpr std::array<std::pair<std::string_view, cpu::Activation>, 6> kKnown = {{
      {"gelu", kGeluErf},
      {"gelu_python", kGeluErf},
      {"gelu_new", kGeluTanh},
      {"gelu_fast", kGeluTanh},
      {"gelu_pytorch_tanh", kGeluTanh},
      {"relu", kRelu},
  }};
  const std::string name = fields.string("hidden_act", "gelu");
  std::string names;
  for (const auto& [known, activation] : kKnown) {
    if (name == known) return activation;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  fields.refuse("hidden_act", "one of " + names);
}

void require_bert(const JsonFields& fields) {
  if (fields.has("model_type")) {
    if (fields.string("model_type") != "bert") fields.refuse("model_type", "\"bert\"");
    return;
  }
  // Early checkpoints have no model_type, but name their class.
  const Json& architectures = fields.array("architectures");
  if (architectures.empty() || !architectures[0].is_string() ||
      !architectures[0].get<std::string>().starts_with("Bert"))
    fields.refuse("model_type", "\"bert\"");
}

void refuse_variants(const JsonFields& fields) {
  if (fields.string("position_embedding_type", "absolute") != "absolute")
    fields.refuse("position_embedding_type", "\"absolute\"");
  for (const char* name : {"is_decoder", "add_cross_attention", "is_encoder_decoder"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  if (fields.has("quantization_config"))
    fields.refuse("quantization_config", "none: weights stored as float32, float16 or bfloat16");
  const Json* pruned = fields.find("pruned_heads");
  if (pruned != nullptr && !pruned->empty()) fields.refuse("pruned_heads", "none");
}

}  // namespace

BertConfig parse_bert_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  require_bert(fields);
  refuse_variants(fields);
  BertConfig config;
  config.hidden_size = fields.integer("hidden_size", 1, kMaxSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.num_heads = fields.integer("num_attention_heads", 1, kMaxSize);
  if (config.hidden_size % config.num_heads != 0)
    fields.fail("num_attention_heads",
                fmt::format("a divisor of hidden_size, {}", config.hidden_size));
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxSize);
  config.num_segments = fields.integer("type_vocab_size", 1, kMaxSize, 2);
  config.activation = read_activation(fields);
  config.layer_norm_eps = static_cast<float>(fields.number("layer_norm_eps", 0, 1, 1e-12));
  return config;
}

BertConfig load_bert_config(const std::string& folder) {
  STOF_CHECK(is_folder(folder), kNotFound,
             "{}: expected the folder of a BERT checkpoint, got no folder; check the path", folder);
  const std::string path = folder + "/config.json";
  return parse_bert_config(read_text_file(path, kMaxFileBytes), path);
}

}  // namespace stof::model
