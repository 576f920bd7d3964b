#pragma once
// What config.json and GGUF metadata of the LLaMA family share.

#include "model/decoder_fields.h"
#include "model/llama_config.h"

namespace stof::model {

struct HeadFields {
  const char *heads, *kv_heads, *head_dim;
};

/// Reads the three; key and value heads default to the heads, a head's size to hidden_size / heads.
void read_heads(const JsonFields& fields, const HeadFields& names, LlamaConfig& config);

}  // namespace stof::model
