#pragma once
// config.json of a BERT checkpoint.

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/cpu/gemm.h"

namespace stof::model {

struct BertConfig {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;  ///< divides hidden_size
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t num_segments = 0;  ///< rows of the token type table; single texts use the first
  cpu::Activation activation = cpu::Activation::kGeluErf;
  float layer_norm_eps = 0;

  std::int64_t head_dim() const { return hidden_size / num_heads; }
};

/// Honours every field that changes numbers or refuses it: throws Corrupt (not JSON, a field
/// missing, of another type or out of range) or Unsupported (a decoder, relative positions,
/// quantised weights, an activation that is not known), naming `file` and field.
BertConfig parse_bert_config(std::string_view text, const std::string& file);

/// Reads folder/config.json; also throws NotFound.
BertConfig load_bert_config(const std::string& folder);

}  // namespace stof::model
