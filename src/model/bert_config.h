#pragma once
// config.json of a checkpoint of BERT's families.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/gemm.h"

namespace stof::model {

/// Whose checkpoint it is. The first three are computed by one graph.
enum class BertFamily : std::uint8_t { kBert, kRoberta, kDistilBert, kModernBert };

/// What ModernBERT alone has.
struct ModernBertFields {
  std::vector<bool> is_local;     ///< by layer; others see all tokens
  std::int64_t local_radius = 0;  ///< tokens that a local layer sees on each side
  double global_theta = 0, local_theta = 0;
  bool norm_bias = false, attention_bias = false, mlp_bias = false;
  bool head_bias = false, decoder_bias = true;  ///< of the masked-LM head
};

struct BertConfig {
  BertFamily family = BertFamily::kBert;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;  ///< divides hidden_size
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;  ///< tokens of the longest text
  /// RoBERTa's pad_token_id: positions are counted from padding_id + 1 over the tokens that are not
  /// this one, which has the position padding_id. -1: positions are counted from 0 over all.
  std::int32_t padding_id = -1;
  /// Rows of the token type table, 0: there is none. Single texts use the first.
  std::int64_t num_segments = 0;
  cpu::Activation activation = cpu::Activation::kGeluErf;
  float layer_norm_eps = 0;
  // Of the masked-LM head.
  cpu::Activation head_activation = cpu::Activation::kGeluErf;
  bool tied_head = true;  ///< it multiplies by the word embeddings
  ModernBertFields modern;

  std::int64_t head_dim() const { return hidden_size / num_heads; }
  /// Rows of the position table.
  std::int64_t position_rows() const { return max_positions + padding_id + 1; }
};

/// Honours every field that changes numbers or refuses it: throws Corrupt (not JSON, a field
/// missing, of another type or out of range) or Unsupported (another model_type, a decoder,
/// relative positions, quantised weights, an activation that is not known), naming `file` and
/// field.
BertConfig parse_bert_config(std::string_view text, const std::string& file);

/// Reads folder/config.json; also throws NotFound.
BertConfig load_bert_config(const std::string& folder);

}  // namespace stof::model
