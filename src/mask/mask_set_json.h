#pragma once
// What a mask set's JSON is read with.

#include <cstdint>

namespace stof::mask {

/// Layers and heads that a rule names are below.
inline constexpr std::int64_t kMaxMaskedIndex = std::int64_t{1} << 20;

}  // namespace stof::mask
