#pragma once
// Gemma 3's text models (Gemma Team 2025, arXiv 2503.19786, section 2): decoders with norms around
// each half of a layer and of each head, and layers that see a window or all.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_fields.h"
#include "model/rope.h"

namespace stof::model {

struct GemmaConfig {
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< divides num_heads
  std::int64_t head_dim = 0;      ///< even
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  float rms_norm_eps = 0;
  double query_scalar = 0;            ///< attention divides q k^T by its square root
  RopeConfig global, local;           ///< of layers that see all, and of those that see a window
  std::vector<std::int64_t> windows;  ///< as LlamaConfig::windows
  bool tied_head = true;
  std::vector<std::int32_t> end_tokens;
};

/// Reads folder/config.json, model_type "gemma3_text", or "gemma3" for its text_config, and
/// generation_config.json. Honours every field that changes numbers as transformers does, or
/// refuses it: throws NotFound, Corrupt or Unsupported, naming file and field.
GemmaConfig load_gemma_config(const std::string& folder);
GemmaConfig parse_gemma_config(std::string_view text, const std::string& file);
/// From the metadata of a GGUF file (gguf_settings()), architecture "gemma3". Whether the head is
/// tied is left to the tensors.
GemmaConfig read_gguf_gemma_config(const Json& settings, const std::string& file);

}  // namespace stof::model
