#pragma once
// The LLaMA family: decoders with RMSNorm, RoPE, grouped queries and gated feed-forward layers.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_fields.h"
#include "model/rope.h"

namespace stof::model {

struct LlamaConfig {
  std::string family;  ///< "llama", "mistral" or "qwen2"
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< divides num_heads
  std::int64_t head_dim = 0;      ///< even; num_heads * head_dim may differ from hidden_size
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  float rms_norm_eps = 0;
  RopeConfig rope;
  bool qkv_bias = false;     ///< of the query, key and value projections
  bool output_bias = false;  ///< of the attention output projection
  bool mlp_bias = false;     ///< of the three feed-forward projections
  bool tied_head = false;    ///< the output projection is the embedding table
  /// Of each layer: a query sees itself and the window - 1 keys before; 0: all before.
  std::vector<std::int64_t> windows;
  std::vector<std::int32_t> end_tokens;  ///< after these the text is over
};

/// Reads folder/config.json and, where there is one, generation_config.json (end tokens). Honours
/// every field that changes numbers as transformers does, or refuses it: throws NotFound, Corrupt
/// (a field missing, of another type or out of range) or Unsupported, naming file and field.
LlamaConfig load_llama_config(const std::string& folder);
LlamaConfig parse_llama_config(std::string_view text, const std::string& file);

/// From the metadata of a GGUF file (gguf_settings()), architecture "llama" or "qwen2". What the
/// tensors decide (biases, a tied head) is left as it is.
LlamaConfig read_gguf_llama_config(const Json& settings, const std::string& file);

}  // namespace stof::model
