#pragma once
// Boolean arrays as hexadecimal text.

#include <string>
#include <string_view>

#include "mask/spec.h"
#include "stof/mask.h"

namespace stof::mask {

/// Two digits a byte; byte j of a row holds keys 8j .. 8j+7, key 8j in the lowest bit. Rows follow
/// one another in row-major order of [B, H, Sq], each padded with 0 bits to whole bytes.
std::string hex_of(const BitArray& array);

/// dense() of an array written by hex_of(). `shape` is [Sq, Sk] or [B, H, Sq, Sk]. Throws
/// InvalidArgument when the number of digits is not what the shape asks for (so memory stays in
/// proportion to the text), or a padding bit is set.
Mask dense_from_hex(const IntList& shape, std::string_view bits);

}  // namespace stof::mask
