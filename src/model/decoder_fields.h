#pragma once
// What the configurations of decoders share: limits of their fields and the tokens that end a text.

#include <cstdint>
#include <string>
#include <vector>

#include "model/json_fields.h"

namespace stof::model {

inline constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
/// Above any real model and far below where products of two sizes overflow.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxLayers = 10'000;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxId = 0x7FFFFFFE;

/// "eos_token_id": an id, a list of ids, or nothing.
std::vector<std::int32_t> read_end_tokens(const JsonFields& fields);

/// Replaces `end_tokens` by those of folder/generation_config.json, where it has some.
void read_generation_config(const std::string& folder, std::vector<std::int32_t>* end_tokens);

}  // namespace stof::model
