#pragma once
// How deep mask expressions that come from outside may be: everything that walks an expression is
// recursive, and must not run out of stack.

#include "stof/mask.h"

namespace stof::mask {

/// Operators inside operators. People stay below 10.
inline constexpr int kMaxNesting = 100;

/// Parentheses, brackets, calls and "~" (text) or objects and lists (JSON) inside one another. An
/// operator costs at most two of them, "~(" or "per_head([", and a block list three more: whatever
/// is nested at most kMaxNesting deep is written and read back. More are refused while reading.
inline constexpr int kMaxSyntaxDepth = 2 * kMaxNesting + 8;

/// Throws InvalidArgument when operators are nested deeper than kMaxNesting.
void check_nesting(const Mask& mask);

}  // namespace stof::mask
