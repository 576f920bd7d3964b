// RoBERTa (Liu et al. 2019, arXiv 1907.11692): BERT with positions counted from behind the padding
// token's id.

#include "core/check.h"
#include "model/bert_family.h"

namespace stof::model {

const BertNames& roberta_names() {
  static const BertNames kNames = [] {
    BertNames names = bert_names();
    names.family = "RoBERTa";
    names.prefixes = {"roberta.", "0.auto_model."};
    names.head = {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"};
    return names;
  }();
  return kNames;
}

BertConfig read_roberta_config(const JsonFields& fields) {
  refuse_bert_variants(fields);
  BertConfig config = read_bert_sizes(fields);
  config.family = BertFamily::kRoberta;
  config.head_activation = cpu::Activation::kGeluErf;  // whatever hidden_act says
  const std::int64_t rows = config.max_positions;
  config.padding_id =
      static_cast<std::int32_t>(fields.integer("pad_token_id", 0, config.vocab_size - 1, 1));
  // Rows up to the padding token's are for no other token.
  config.max_positions = rows - config.padding_id - 1;
  if (config.max_positions < 1)
    fields.fail("max_position_embeddings",
                fmt::format("more than pad_token_id + 1, {}", config.padding_id + 1));
  return config;
}

}  // namespace stof::model
