#pragma once
// GPT-2: learned positions, LayerNorm in front of attention and feed-forward, a tied head.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "model/json_fields.h"

namespace stof::model {

struct Gpt2Config {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;  ///< divides hidden_size
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  float layer_norm_eps = 0;
  graph::Activation activation = graph::Activation::kGeluTanh;
  bool scaled_attention = true;          ///< scores by 1 / sqrt(head size), else as they are
  bool tied_head = true;                 ///< the output projection is the embedding table
  std::vector<std::int32_t> end_tokens;  ///< after these the text is over
};

/// Reads folder/config.json and, where there is one, generation_config.json (end tokens). Honours
/// every field that changes numbers as transformers does, or refuses it: throws NotFound, Corrupt
/// (a field missing, of another type or out of range) or Unsupported, naming file and field.
Gpt2Config load_gpt2_config(const std::string& folder);
Gpt2Config parse_gpt2_config(std::string_view text, const std::string& file);

}  // namespace stof::model
