#pragma once
// Compiled kernels on disk, shared by all processes of a user.
//
// The key is content only: source text, every embedded header, options, compiler version and full
// target. An entry is written to a temporary name, synced and renamed; its header carries magic,
// format version, lengths and checksum. A bad entry is set aside and rebuilt with one warning.

#include <optional>
#include <string>
#include <vector>

#include "jit/cubin_entry.h"
#include "stof/fingerprint.h"

namespace stof::jit {

/// Everything a cubin depends on.
struct CubinKey {
  std::string source;
  std::string target;            ///< "sm_90a"
  std::string compiler_version;  ///< "13.0"; empty: whichever version is there, the newest first
  /// Of everything but the compiler's version: embedded headers and options too.
  Fingerprint content() const;
};

/// An entry as `stof cache ls` shows it.
struct CacheEntry {
  std::string path;
  std::string name;  ///< kernel configuration
  std::uint64_t bytes = 0;
  bool valid = false;
};

class CubinCache {
 public:
  /// The folder need not exist; where it cannot be created or written the cache only reads.
  explicit CubinCache(std::string folder);
  /// In the per-user cache folder ($STOF_CACHE and so on).
  static CubinCache standard();

  /// Nothing when absent or unreadable. A corrupt entry is renamed to *.bad and reported once.
  std::optional<std::string> load(const CubinKey& key) const;
  /// Quietly does nothing where the folder is not writable: the cache is an optimisation.
  void store(const CubinKey& key, const std::string& name, const std::string& cubin) const;

  std::vector<CacheEntry> list() const;
  /// Removes every entry; returns how many.
  int clear() const;

  /// All intact entries.
  std::vector<CubinEntry> entries() const;
  /// Stores one. Unlike store() throws Io where that fails.
  void add(const CubinEntry& entry) const;
  const std::string& folder() const { return folder_; }

 private:
  std::optional<std::string> load_file(const std::string& path, const Fingerprint& content) const;
  std::string folder_;
};

}  // namespace stof::jit
