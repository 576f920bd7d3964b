#pragma once
// What config.json and GGUF metadata of the LLaMA family share: limits and rules of their fields.

#include <cstdint>

#include "model/llama_config.h"

namespace stof::model {

/// Above any real model and far below where products of two sizes overflow.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxLayers = 10'000;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxId = 0x7FFFFFFE;

struct HeadFields {
  const char *heads, *kv_heads, *head_dim;
};

/// Reads the three; key and value heads default to the heads, a head's size to hidden_size / heads.
void read_heads(const JsonFields& fields, const HeadFields& names, LlamaConfig& config);

}  // namespace stof::model
