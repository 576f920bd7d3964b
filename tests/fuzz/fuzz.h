#pragma once
// What every fuzz target shares: which outcomes are right for arbitrary input.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "stof/error.h"

namespace stof::fuzz {

/// Runs `read` on hostile input. Refusing it by a user-fault error is right; any other exception
/// ends the process and with it the fuzzer: OutOfMemory would mean that a claimed size was
/// believed, Internal that an invariant broke.
template <class Function>
void accept_or_refuse(Function read) {
  try {
    read();
  } catch (const Error& error) {
    if (!error.is_user_fault()) throw;
  }
}

/// For properties of accepted input; independent of NDEBUG.
inline void require(bool condition) {
  if (!condition) std::abort();
}

inline std::span<const std::byte> as_bytes(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace stof::fuzz
