#pragma once
// The families of encoders: what each reads of config.json, and what it calls its tensors. One
// source a family.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/bert_config.h"
#include "model/json_fields.h"

namespace stof::model {

/// Names of tensors. Dense layers and norms end in ".weight" and ".bias"; those of a layer begin
/// with `layer`, the layer's number and a dot.
struct BertNames {
  std::string_view family;                 ///< as people write it: "DistilBERT"
  std::vector<std::string_view> prefixes;  ///< any of them, or none, before every name
  struct Head {
    std::string_view dense, norm, decoder;
    std::string_view tied_bias;      ///< whole; of a head that is tied to the word embeddings
  } head;                            ///< for masked tokens; no prefix before its names
  std::string_view word_embeddings;  ///< whole
  std::string_view layer, query, key, value, attention_output, attention_norm, intermediate, output,
      output_norm;
};

const BertNames& bert_names();
const BertNames& roberta_names();
const BertNames& distilbert_names();
const BertNames& modernbert_names();
const BertNames& names_of(BertFamily family);

/// Each throws as parse_bert_config() does.
BertConfig read_bert_config(const JsonFields& fields);
BertConfig read_roberta_config(const JsonFields& fields);
BertConfig read_distilbert_config(const JsonFields& fields);
BertConfig read_modernbert_config(const JsonFields& fields);

// --- shared by the families -----------------------------------------------------------------

/// Above any real model and far below where products of two sizes overflow.
inline constexpr std::int64_t kMaxBertSize = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxBertLayers = 10'000;

/// Refuses what would need another graph or other weights.
void refuse_bert_variants(const JsonFields& fields);
/// The field's activation, by its name in transformers; gelu where it is absent.
cpu::Activation read_bert_activation(const JsonFields& fields, const char* name);
/// The field's number of heads, a divisor of the field `size`.
std::int64_t read_bert_heads(const JsonFields& fields, const char* name, const char* size);
/// The sizes, activation and epsilon that BERT and RoBERTa spell alike.
BertConfig read_bert_sizes(const JsonFields& fields);

}  // namespace stof::model
