#pragma once
// T5 (Raffel et al. 2020, arXiv 1910.10683) and mT5: an encoder and a decoder whose attention knows
// positions by a learned bias for buckets of distances.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "model/json_fields.h"

namespace stof::model {

/// What transformers' pipelines put in front of a text, and how much they let the model write.
struct T5Task {
  std::string name;  ///< "summarization", "translation_en_to_de"
  std::string prefix;
  std::int64_t max_tokens = 0;  ///< 0: not said
};

struct T5Config {
  std::string family;            ///< "t5" or "mt5"
  std::int64_t hidden_size = 0;  ///< d_model
  std::int64_t head_dim = 0;     ///< d_kv; heads of it need not make up hidden_size
  std::int64_t num_heads = 0;
  std::int64_t inner_size = 0;  ///< d_ff
  std::int64_t encoder_layers = 0, decoder_layers = 0;
  std::int64_t vocab_size = 0;
  std::int64_t num_buckets = 0;   ///< of relative positions; even
  std::int64_t max_distance = 0;  ///< from here on distances share a bucket
  float layer_norm_eps = 0;       ///< of RMSNorm
  graph::Activation activation = graph::Activation::kRelu;
  bool gated = false;            ///< activation(x W0) (x W1) in place of activation(x W)
  bool scaled_head = false;      ///< the decoder's output by hidden_size^-0.5 in front of the head
  std::int32_t start_token = 0;  ///< what the decoder reads first
  std::vector<std::int32_t> end_tokens;  ///< after these the text is over
  std::vector<T5Task> tasks;             ///< task_specific_params

  std::int64_t inner_heads() const { return num_heads * head_dim; }
};

/// Reads folder/config.json and, where there is one, generation_config.json (start and end tokens).
/// Honours every field that changes numbers as transformers 5.17 does, or refuses it: throws
/// NotFound, Corrupt (a field missing, of another type or out of range) or Unsupported, naming file
/// and field.
T5Config load_t5_config(const std::string& folder);
T5Config parse_t5_config(std::string_view text, const std::string& file);

}  // namespace stof::model
