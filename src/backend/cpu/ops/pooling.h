#pragma once
// From token states to one vector per text.

#include <cstdint>

namespace stof::cpu {

enum class Pooling : std::uint8_t {
  kMean,  ///< over all tokens, special ones included
  kCls,   ///< the first token
  kMax,   ///< largest value of each component
};

/// x: [rows, width] with rows >= 1, out: [width].
void pool_rows(Pooling pooling, const float* x, std::int64_t rows, std::int64_t width, float* out);

/// x / max(|x|, 1e-12), as PyTorch's normalize; a zero vector stays zero.
void normalize_l2(float* x, std::int64_t width);

}  // namespace stof::cpu
