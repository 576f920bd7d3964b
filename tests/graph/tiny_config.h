#pragma once
// A BERT small enough to be interpreted in double.

#include "model/bert_config.h"

namespace stof::graph {

inline model::BertConfig tiny_config() {
  model::BertConfig config;
  config.hidden_size = 8;
  config.num_layers = 2;
  config.num_heads = 2;
  config.intermediate_size = 12;
  config.vocab_size = 20;
  config.max_positions = 16;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-5f;
  return config;
}

}  // namespace stof::graph
