#pragma once
// A compiled kernel as it lies in the cache folder, in an archive and in the library: one format.

#include <optional>
#include <string>
#include <string_view>

#include "stof/fingerprint.h"

namespace stof::jit {

struct CubinEntry {
  Fingerprint content;           ///< of what was compiled: CubinKey::content()
  std::string compiler_version;  ///< "13.0"
  std::string name;              ///< kernel configuration, for people
  std::string cubin;

  /// Name in the cache folder: content, compiler version, ".cubin".
  std::string file_name() const;
  /// Magic, content, lengths, checksum; then version, name and cubin.
  std::string serialize() const;
};

/// Entries are never larger.
inline constexpr std::uint64_t kMaxEntryBytes = 64u << 20;

/// Reads the entry at the start of `bytes` and cuts it off; nothing, with `bytes` as it was, when a
/// byte of it is wrong or missing.
std::optional<CubinEntry> take_entry(std::string_view* bytes);

}  // namespace stof::jit
