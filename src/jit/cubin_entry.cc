#include "jit/cubin_entry.h"

#include <cstring>

#include "core/hash.h"

namespace stof::jit {
namespace {

constexpr char kEntryMagic[8] = {'s', 't', 'o', 'f', 'c', 'u', 'b', '2'};

/// Fixed part of an entry; compiler version, kernel name and cubin follow.
struct EntryHeader {
  char magic[8];
  std::uint64_t content[2];
  std::uint64_t version_bytes, name_bytes, cubin_bytes;
  std::uint64_t checksum[2];  // of everything but magic and checksum
};
static_assert(sizeof(EntryHeader) == 64);

Fingerprint checksum_of(const CubinEntry& entry) {
  return Hasher()
      .add(entry.content)
      .add(entry.compiler_version)
      .add(entry.name)
      .add(entry.cubin)
      .finish();
}

/// Part of a file's name, so nothing but digits and dots.
bool is_version(std::string_view text) {
  return !text.empty() && text.size() <= 16 &&
         text.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string CubinEntry::file_name() const {
  return content.hex() + "-" + compiler_version + ".cubin";
}

std::string CubinEntry::serialize() const {
  const Fingerprint sum = checksum_of(*this);
  EntryHeader header{
      {},           {content.high, content.low}, compiler_version.size(), name.size(),
      cubin.size(), {sum.high, sum.low}};
  std::memcpy(header.magic, kEntryMagic, sizeof kEntryMagic);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(compiler_version).append(name).append(cubin);
}

std::optional<CubinEntry> take_entry(std::string_view* bytes) {
  EntryHeader header;
  if (bytes->size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes->data(), sizeof header);
  if (std::memcmp(header.magic, kEntryMagic, sizeof kEntryMagic) != 0) return std::nullopt;
  std::string_view rest = bytes->substr(sizeof header);
  const auto take = [&rest](std::uint64_t size) -> std::optional<std::string> {
    if (size > rest.size()) return std::nullopt;
    std::string text(rest.substr(0, size));
    rest.remove_prefix(size);
    return text;
  };
  auto version = take(header.version_bytes);
  auto name = version ? take(header.name_bytes) : std::nullopt;
  auto cubin = name ? take(header.cubin_bytes) : std::nullopt;
  if (!cubin || !is_version(*version)) return std::nullopt;
  CubinEntry entry{{header.content[0], header.content[1]},
                   std::move(*version),
                   std::move(*name),
                   std::move(*cubin)};
  if (checksum_of(entry) != Fingerprint{header.checksum[0], header.checksum[1]})
    return std::nullopt;
  *bytes = rest;
  return entry;
}

}  // namespace stof::jit
