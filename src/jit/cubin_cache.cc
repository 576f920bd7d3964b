#include "jit/cubin_cache.h"

#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "jit/embedded_sources.h"

namespace stof::jit {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'s', 't', 'o', 'f', 'c', 'u', 'b', '1'};
constexpr std::uint64_t kMaxEntryBytes = 64u << 20;

/// Fixed part of an entry; the kernel's name and the cubin follow.
struct Header {
  char magic[8];
  std::uint64_t name_bytes;
  std::uint64_t cubin_bytes;
  std::uint64_t checksum[2];  // of name and cubin
};
static_assert(sizeof(Header) == 40);

struct Parsed {
  std::string name, cubin;
};

Fingerprint checksum_of(const std::string& name, const std::string& cubin) {
  return Hasher().add(name).add(cubin).finish();
}

/// Nothing when any byte is wrong.
std::optional<Parsed> parse_entry(const std::string& bytes) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return std::nullopt;
  const std::uint64_t rest = bytes.size() - sizeof header;
  if (header.name_bytes > rest || header.cubin_bytes != rest - header.name_bytes)
    return std::nullopt;
  Parsed parsed{bytes.substr(sizeof header, header.name_bytes),
                bytes.substr(sizeof header + header.name_bytes)};
  const Fingerprint sum = checksum_of(parsed.name, parsed.cubin);
  if (sum.high != header.checksum[0] || sum.low != header.checksum[1]) return std::nullopt;
  return parsed;
}

std::optional<std::string> read_entry(const std::string& path) {
  try {
    return read_text_file(path, kMaxEntryBytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

Fingerprint CubinKey::fingerprint() const {
  Hasher hasher;
  hasher.add("stof cubin").add(source).add(target).add(compiler_version);
  for (const EmbeddedSource& header : embedded_sources()) hasher.add(header.name).add(header.text);
  for (const char* option : Nvrtc::options()) hasher.add(option);
  return hasher.finish();
}

CubinCache::CubinCache(std::string folder) : folder_(std::move(folder)) {}

CubinCache CubinCache::standard() { return CubinCache(cache_folder() + "/cubin"); }

std::string CubinCache::path_of(const CubinKey& key) const {
  return folder_ + "/" + key.fingerprint().hex() + ".cubin";
}

std::optional<std::string> CubinCache::load(const CubinKey& key) const {
  const std::string path = path_of(key);
  const auto bytes = read_entry(path);
  if (!bytes) return std::nullopt;
  if (auto parsed = parse_entry(*bytes)) return std::move(parsed->cubin);
  std::error_code ignored;
  fs::rename(path, path + ".bad", ignored);
  log_warn("{}: damaged kernel cache entry set aside as *.bad and rebuilt", path);
  return std::nullopt;
}

void CubinCache::store(const CubinKey& key, const std::string& name,
                       const std::string& cubin) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  const Fingerprint sum = checksum_of(name, cubin);
  Header header{{}, name.size(), cubin.size(), {sum.high, sum.low}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  try {
    AtomicFile file(path_of(key));
    file.write(&header, sizeof header);
    file.write(name);
    file.write(cubin);
    file.commit();
  } catch (const Error& error) {
    log_info("kernel cache not written: {}", error.what());
  }
}

std::vector<CacheEntry> CubinCache::list() const {
  std::vector<CacheEntry> entries;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    if (file.path().extension() != ".cubin") continue;
    CacheEntry entry;
    entry.path = file.path().string();
    const auto bytes = read_entry(entry.path);
    entry.bytes = bytes ? bytes->size() : 0;
    if (bytes)
      if (const auto parsed = parse_entry(*bytes)) {
        entry.valid = true;
        entry.name = parsed->name;
      }
    entries.push_back(std::move(entry));
  }
  return entries;
}

int CubinCache::clear() const {
  int removed = 0;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const auto extension = file.path().extension();
    if (extension == ".cubin" || extension == ".bad") removed += fs::remove(file.path(), ignored);
  }
  return removed;
}

std::string cubin_for(const std::string& name, const std::string& source,
                      const std::string& target) {
  const Nvrtc& compiler = Nvrtc::instance();
  const CubinKey key{source, target, compiler.version()};
  const CubinCache cache = CubinCache::standard();
  if (auto cubin = cache.load(key)) return std::move(*cubin);
  const CompiledModule module = compiler.compile(name, source, target);
  const ResourceReport resources = parse_resources(module.log);
  STOF_CHECK(resources.spill_bytes == 0 && !resources.wgmma_serialized, kJit,
             "{} for {}: rejected: {} bytes spilled, matrix instructions {}", name, target,
             resources.spill_bytes, resources.wgmma_serialized ? "serialised" : "overlapped");
  cache.store(key, name, module.cubin);
  return module.cubin;
}

}  // namespace stof::jit
