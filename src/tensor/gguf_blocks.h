#pragma once
// How GGUF stores elements: blocks with shared scales.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "stof/gguf.h"

namespace stof {

/// `elements` consecutive elements of a row take `bytes`.
struct GgufBlock {
  std::int64_t elements;
  std::int64_t bytes;
};

/// The type of that number, or nothing when it is not among GgufType.
std::optional<GgufType> gguf_type(std::uint32_t number);

GgufBlock gguf_block(GgufType type);

/// Writes num_blocks * gguf_block(type).elements floats; `blocks` need not be aligned.
void dequantize(GgufType type, const std::byte* blocks, std::int64_t num_blocks, float* out);

}  // namespace stof
