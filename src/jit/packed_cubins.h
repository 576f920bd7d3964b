#pragma once
// Kernels compiled when the library was built (STOF_PACK_CUBINS), so that their first use compiles
// nothing and needs no NVRTC.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "jit/cubin_entry.h"

namespace stof::jit {

/// The archive inside the library; empty where none was packed. Made by cmake/pack_cubins.cmake.
std::string_view packed_archive();

/// The kernels of an archive, by what they were compiled from.
class PackedCubins {
 public:
  /// An empty archive holds nothing. Throws what parse_archive() does.
  explicit PackedCubins(std::string_view archive);
  /// Those inside the library, read at first use.
  static const PackedCubins& instance();

  const std::string* find(const Fingerprint& content) const;
  std::size_t size() const { return cubins_.size(); }

 private:
  std::map<Fingerprint, std::string> cubins_;
};

}  // namespace stof::jit
