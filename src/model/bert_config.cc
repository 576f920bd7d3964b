#include "model/bert_config.h"

#include <array>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "model/bert_family.h"

namespace stof::model {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 << 20;

}  // namespace

const BertNames& names_of(BertFamily family) {
  switch (family) {
    case BertFamily::kBert:
      return bert_names();
    case BertFamily::kRoberta:
      return roberta_names();
    case BertFamily::kDistilBert:
      return distilbert_names();
    case BertFamily::kModernBert:
      return modernbert_names();
  }
  throw_error(ErrorCode::kInternal, "BERT family {} has no names", static_cast<int>(family));
}

cpu::Activation read_bert_activation(const JsonFields& fields, const char* field) {
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
  const std::string name = fields.string(field, "gelu");
  std::string names;
  for (const auto& [known, activation] : kKnown) {
    if (name == known) return activation;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  fields.refuse(field, "one of " + names);
}

void refuse_bert_variants(const JsonFields& fields) {
  if (fields.string("position_embedding_type", "absolute") != "absolute")
    fields.refuse("position_embedding_type", "\"absolute\"");
  for (const char* name : {"is_decoder", "add_cross_attention", "is_encoder_decoder"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  if (fields.has("quantization_config"))
    fields.refuse("quantization_config", "none: weights stored as float32, float16 or bfloat16");
  const Json* pruned = fields.find("pruned_heads");
  if (pruned != nullptr && !pruned->empty()) fields.refuse("pruned_heads", "none");
}

std::int64_t read_bert_heads(const JsonFields& fields, const char* name, const char* size) {
  const std::int64_t heads = fields.integer(name, 1, kMaxBertSize);
  const std::int64_t hidden = fields.integer(size, 1, kMaxBertSize);
  if (hidden % heads != 0) fields.fail(name, fmt::format("a divisor of {}, {}", size, hidden));
  return heads;
}

BertConfig read_bert_sizes(const JsonFields& fields) {
  BertConfig config;
  config.hidden_size = fields.integer("hidden_size", 1, kMaxBertSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, kMaxBertLayers);
  config.num_heads = read_bert_heads(fields, "num_attention_heads", "hidden_size");
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxBertSize);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxBertSize);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxBertSize);
  config.num_segments = fields.integer("type_vocab_size", 1, kMaxBertSize, 2);
  config.activation = read_bert_activation(fields, "hidden_act");
  config.head_activation = config.activation;
  config.tied_head = fields.boolean("tie_word_embeddings", true);
  config.layer_norm_eps = static_cast<float>(fields.number("layer_norm_eps", 0, 1, 1e-12));
  return config;
}

const BertNames& bert_names() {
  static const BertNames kNames = {
      "BERT",
      {"bert.", "0.auto_model."},
      {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
       "cls.predictions.decoder", "cls.predictions.bias"},
      "embeddings.word_embeddings.weight",
      "encoder.layer.",
      "attention.self.query",
      "attention.self.key",
      "attention.self.value",
      "attention.output.dense",
      "attention.output.LayerNorm",
      "intermediate.dense",
      "output.dense",
      "output.LayerNorm"};
  return kNames;
}

BertConfig read_bert_config(const JsonFields& fields) {
  refuse_bert_variants(fields);
  return read_bert_sizes(fields);
}

BertConfig parse_bert_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  constexpr const char* kKnown = "\"bert\", \"roberta\", \"distilbert\" or \"modernbert\"";
  if (!fields.has("model_type")) {
    // Early checkpoints have no model_type, but name their class.
    const Json& architectures = fields.array("architectures");
    if (architectures.empty() || !architectures[0].is_string() ||
        !architectures[0].get<std::string>().starts_with("Bert"))
      fields.refuse("model_type", kKnown);
    return read_bert_config(fields);
  }
  const std::string type = fields.string("model_type");
  if (type == "bert") return read_bert_config(fields);
  if (type == "roberta") return read_roberta_config(fields);
  if (type == "distilbert") return read_distilbert_config(fields);
  if (type == "modernbert") return read_modernbert_config(fields);
  fields.refuse("model_type", kKnown);
}

BertConfig load_bert_config(const std::string& folder) {
  STOF_CHECK(is_folder(folder), kNotFound,
             "{}: expected the folder of an encoder's checkpoint, got no folder; check the path",
             folder);
  const std::string path = folder + "/config.json";
  return parse_bert_config(read_text_file(path, kMaxFileBytes), path);
}

}  // namespace stof::model
