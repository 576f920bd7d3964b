#pragma once
// Structs that grow: the first member says how much of one the caller knows.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/check.h"

namespace stof::capi {

/// The caller's struct, with zeros for the fields that its header did not have. `first_size` is the
/// struct's size when it was first released: no caller has a smaller one.
template <class Struct>
Struct read_sized(const Struct* given, const char* name, std::size_t first_size) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  STOF_CHECK(given != nullptr, kInvalidArgument, "{}: expected a pointer, got null", name);
  std::uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  STOF_CHECK(size >= first_size, kInvalidArgument,
             "{}.struct_size: expected {}, got {}; set it to sizeof the struct", name,
             sizeof(Struct), size);
  STOF_CHECK(
      size <= sizeof(Struct), kInvalidArgument,
      "{}.struct_size: expected at most {}, got {}; the caller was compiled for a newer stof "
      "than this library: update the library",
      name, sizeof(Struct), size);
  Struct all{};
  std::memcpy(&all, given, size);
  return all;
}

/// For structs that have not grown since their first release.
template <class Struct>
Struct read_sized(const Struct* given, const char* name) {
  return read_sized(given, name, sizeof(Struct));
}

/// The same where null means that every field has its default.
template <class Struct>
Struct read_sized_or_default(const Struct* given, const char* name) {
  return given == nullptr ? Struct{} : read_sized(given, name);
}

}  // namespace stof::capi
