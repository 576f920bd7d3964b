#pragma once
// Checks of tensor data that comes from a file.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/check.h"
#include "stof/tensor.h"

namespace stof {

/// Bytes that a contiguous tensor takes; nothing where they, or the product of the non-zero
/// extents, pass 2^63. Extents are not negative.
inline std::optional<std::uint64_t> data_bytes(DType dtype, const Dims& shape) {
  auto bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

/// A file may hold any byte where C++ allows a bool to be 0 or 1 only. Throws Corrupt starting with
/// `where` and naming the first byte that is neither.
inline void check_bool_bytes(std::span<const std::byte> bytes, const std::string& where) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  STOF_CHECK(bad == bytes.end(), kCorrupt, "{}: expected booleans of 0 or 1, got {} as element {}",
             where, std::to_integer<int>(*bad), bad - bytes.begin());
}

}  // namespace stof
