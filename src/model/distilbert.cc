// DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT without token types, under names of its
// own.

#include <array>
#include <utility>

#include "core/check.h"
#include "model/bert_family.h"

namespace stof::model {

const BertNames& distilbert_names() {
  static const BertNames kNames = {
      "DistilBERT",
      {"distilbert.", "0.auto_model."},
      {"vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"},
      "embeddings.word_embeddings.weight",
      "transformer.layer.",
      "attention.q_lin",
      "attention.k_lin",
      "attention.v_lin",
      "attention.out_lin",
      "sa_layer_norm",
      "ffn.lin1",
      "ffn.lin2",
      "output_layer_norm"};
  return kNames;
}

/// sinusoidal_pos_embds only says how the position table was first filled; the file has it.
BertConfig read_distilbert_config(const JsonFields& fields) {
  refuse_bert_variants(fields);
  BertConfig config;
  config.family = BertFamily::kDistilBert;
  config.hidden_size = fields.integer("dim", 1, kMaxBertSize);
  config.num_layers = fields.integer("n_layers", 1, kMaxBertLayers);
  config.num_heads = read_bert_heads(fields, "n_heads", "dim");
  // transformers takes BERT's spelling too; which of two values it would take is not guessed.
  const std::array<std::pair<const char*, std::int64_t>, 3> aliases = {
      {{"hidden_size", config.hidden_size},
       {"num_hidden_layers", config.num_layers},
       {"num_attention_heads", config.num_heads}}};
  for (const auto& [name, value] : aliases)
    if (fields.integer(name, 1, kMaxBertSize, value) != value)
      fields.refuse(name, fmt::format("{}, as DistilBERT's own field says", value));
  config.intermediate_size = fields.integer("hidden_dim", 1, kMaxBertSize);
  config.vocab_size = fields.integer("vocab_size", 1, kMaxBertSize);
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxBertSize);
  config.activation = read_bert_activation(fields, "activation");
  config.head_activation = config.activation;
  config.tied_head = fields.boolean("tie_word_embeddings", true);
  config.layer_norm_eps = 1e-12f;  // no field: as in the original's code
  return config;
}

}  // namespace stof::model
