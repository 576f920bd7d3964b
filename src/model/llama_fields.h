#pragma once
// What config.json and GGUF metadata of the LLaMA family share.

#include <span>
#include <string_view>

#include "model/decoder_fields.h"
#include "model/llama_config.h"

namespace stof::model {

struct HeadFields {
  const char *heads, *kv_heads, *head_dim;
};

/// Reads the three; key and value heads default to the heads, a head's size to hidden_size / heads.
void read_heads(const JsonFields& fields, const HeadFields& names, LlamaConfig& config);

/// The fields of an architecture in GGUF metadata, without its prefix ("llama."). Refuses those
/// that are not known.
Json gguf_architecture_fields(const Json& settings, const std::string& file,
                              const std::string& architecture,
                              std::span<const std::string_view> known);
/// From "rope...." of such fields.
RopeConfig read_gguf_rope(const JsonFields& fields);
/// From the keys "tokenizer.ggml..." of the metadata.
std::vector<std::int32_t> read_gguf_end_tokens(const JsonFields& metadata);

}  // namespace stof::model
