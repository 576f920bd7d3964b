#pragma once
// Structs that grow: the first member says how much of one the caller knows.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

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

/// An array of structs that grow. Its elements are as far apart as the caller's struct is long,
/// which the first one says and the others repeat; a longer or shorter one of this library would
/// miss them.
template <class Struct>
class SizedArray {
 public:
  SizedArray(const Struct* given, std::string name, std::size_t first_size = sizeof(Struct))
      : first_(reinterpret_cast<const std::byte*>(given)),
        name_(std::move(name)),
        first_size_(first_size) {}

  /// Element `i`; the caller vouches that there are so many.
  Struct read(std::int64_t i) const {
    const std::string name = fmt::format("{}[{}]", name_, i);
    if (first_ == nullptr) return read_sized<Struct>(nullptr, name.c_str(), first_size_);
    std::uint32_t step = 0, size = 0;
    std::memcpy(&step, first_, sizeof(step));
    const std::byte* element = first_ + i * std::int64_t{step};
    // Before more is read: the caller's array may end behind `step` bytes.
    std::memcpy(&size, element, sizeof(size));
    STOF_CHECK(size == step, kInvalidArgument, "{}.struct_size: expected {} as in {}[0], got {}",
               name, step, name_, size);
    return read_sized(reinterpret_cast<const Struct*>(element), name.c_str(), first_size_);
  }

 private:
  const std::byte* first_;
  std::string name_;
  std::size_t first_size_;
};

/// A struct that may be null, which means that every field has its default.
template <class Struct>
Struct read_sized_or_default(const Struct* given, const char* name) {
  return given == nullptr ? Struct{} : read_sized(given, name);
}

}  // namespace stof::capi
