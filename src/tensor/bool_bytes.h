#pragma once
// Files may hold any byte where C++ allows a bool to be 0 or 1 only.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "core/check.h"

namespace stof {

/// Throws Corrupt starting with `where` and naming the first byte that is neither 0 nor 1.
inline void check_bool_bytes(std::span<const std::byte> bytes, const std::string& where) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  STOF_CHECK(bad == bytes.end(), kCorrupt, "{}: expected booleans of 0 or 1, got {} as element {}",
             where, std::to_integer<int>(*bad), bad - bytes.begin());
}

}  // namespace stof
