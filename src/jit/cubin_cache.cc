#include "jit/cubin_cache.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "jit/embedded_sources.h"
#include "jit/nvrtc.h"

namespace stof::jit {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".cubin";

std::optional<std::string> read_entry(const std::string& path) {
  try {
    return read_text_file(path, kMaxEntryBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Nothing when the file is not exactly one intact entry under its own name.
std::optional<CubinEntry> parse_file(const std::string& path, const std::string& bytes) {
  std::string_view rest = bytes;
  auto entry = take_entry(&rest);
  if (!entry || !rest.empty() || fs::path(path).filename() != entry->file_name())
    return std::nullopt;
  return entry;
}

/// "13.0" -> (13, 0), to tell 12.9 from 12.10.
std::pair<int, int> version_of(const std::string& file_name) {
  const std::size_t dash = file_name.find('-');
  if (dash == std::string::npos) return {0, 0};
  int major = 0, minor = 0;
  const char* const end = file_name.data() + file_name.size();
  const auto [dot, status] = std::from_chars(file_name.data() + dash + 1, end, major);
  if (status == std::errc() && dot < end) std::from_chars(dot + 1, end, minor);
  return {major, minor};
}

}  // namespace

Fingerprint CubinKey::content() const {
  Hasher hasher;
  hasher.add("stof cubin").add(source).add(target);
  for (const EmbeddedSource& header : embedded_sources()) hasher.add(header.name).add(header.text);
  for (const char* option : Nvrtc::options()) hasher.add(option);
  return hasher.finish();
}

CubinCache::CubinCache(std::string folder) : folder_(std::move(folder)) {}

CubinCache CubinCache::standard() { return CubinCache(cache_folder() + "/cubin"); }

std::optional<std::string> CubinCache::load_file(const std::string& path,
                                                 const Fingerprint& content) const {
  const auto bytes = read_entry(path);
  if (!bytes) return std::nullopt;
  auto entry = parse_file(path, *bytes);
  if (entry && entry->content == content) return std::move(entry->cubin);
  std::error_code ignored;
  fs::rename(path, path + ".bad", ignored);
  log_warn("{}: damaged kernel cache entry set aside as *.bad and rebuilt", path);
  return std::nullopt;
}

std::optional<std::string> CubinCache::load(const CubinKey& key) const {
  const Fingerprint content = key.content();
  const auto path_of = [&](const std::string& file) { return folder_ + "/" + file; };
  if (!key.compiler_version.empty())
    return load_file(path_of(CubinEntry{content, key.compiler_version, "", ""}.file_name()),
                     content);
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const std::string name = file.path().filename().string();
    if (file.path().extension() == kExtension && name.starts_with(content.hex() + "-"))
      files.push_back(name);
  }
  std::sort(files.begin(), files.end(), [](const std::string& a, const std::string& b) {
    return version_of(a) > version_of(b);
  });
  for (const std::string& file : files)
    if (auto cubin = load_file(path_of(file), content)) return cubin;
  return std::nullopt;
}

void CubinCache::add(const CubinEntry& entry) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  AtomicFile file(folder_ + "/" + entry.file_name());
  file.write(entry.serialize());
  file.commit();
}

void CubinCache::store(const CubinKey& key, const std::string& name,
                       const std::string& cubin) const {
  try {
    add({key.content(), key.compiler_version, name, cubin});
  } catch (const Error& error) {
    log_info("kernel cache not written: {}", error.what());
  }
}

std::vector<CacheEntry> CubinCache::list() const {
  std::vector<CacheEntry> entries;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    if (file.path().extension() != kExtension) continue;
    CacheEntry entry;
    entry.path = file.path().string();
    const auto bytes = read_entry(entry.path);
    entry.bytes = bytes ? bytes->size() : 0;
    if (bytes)
      if (const auto parsed = parse_file(entry.path, *bytes)) {
        entry.valid = true;
        entry.name = parsed->name;
      }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  return entries;
}

std::vector<CubinEntry> CubinCache::entries() const {
  std::vector<CubinEntry> entries;
  for (const CacheEntry& listed : list()) {
    const auto bytes = read_entry(listed.path);
    if (!bytes) continue;
    if (auto entry = parse_file(listed.path, *bytes)) entries.push_back(std::move(*entry));
  }
  return entries;
}

int CubinCache::clear() const {
  int removed = 0;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const auto extension = file.path().extension();
    if (extension == kExtension || extension == ".bad") removed += fs::remove(file.path(), ignored);
  }
  return removed;
}

}  // namespace stof::jit
