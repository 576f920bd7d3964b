#pragma once
// A 128-bit content hash, stable across processes and machines.

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace stof {

/// XXH3-128 of a value's canonical form. Not for security.
struct Fingerprint {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  /// 32 lower-case hexadecimal digits.
  std::string hex() const;

  auto operator<=>(const Fingerprint&) const = default;
};

}  // namespace stof
