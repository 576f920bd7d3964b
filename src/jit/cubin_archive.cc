#include "jit/cubin_archive.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/hash.h"

namespace stof::jit {
namespace {

constexpr char kArchiveMagic[8] = {'s', 't', 'o', 'f', 'p', 'a', 'k', '1'};

struct ArchiveHeader {
  char magic[8];
  std::uint64_t num_entries;
  std::uint64_t body_bytes;
  std::uint64_t checksum[2];  // of the body
};
static_assert(sizeof(ArchiveHeader) == 40);

}  // namespace

std::string make_archive(std::vector<CubinEntry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const CubinEntry& a, const CubinEntry& b) { return a.file_name() < b.file_name(); });
  std::string body;
  for (const CubinEntry& entry : entries) body += entry.serialize();
  const Fingerprint sum = fingerprint_of(body);
  ArchiveHeader header{{}, entries.size(), body.size(), {sum.high, sum.low}};
  std::memcpy(header.magic, kArchiveMagic, sizeof kArchiveMagic);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

std::vector<CubinEntry> parse_archive(std::string_view bytes, const std::string& name) {
  ArchiveHeader header;
  STOF_CHECK(bytes.size() >= sizeof header && std::memcmp(bytes.data(), kArchiveMagic, 8) == 0,
             kCorrupt, "{}: expected a file made by stof cache export, got something else", name);
  std::memcpy(&header, bytes.data(), sizeof header);
  std::string_view body = bytes.substr(sizeof header);
  STOF_CHECK(
      body.size() == header.body_bytes, kCorrupt,
      "{}: expected {} bytes of kernels, got {}: the file was cut or added to; copy it again", name,
      header.body_bytes, body.size());
  STOF_CHECK(fingerprint_of(body) == (Fingerprint{header.checksum[0], header.checksum[1]}),
             kCorrupt, "{}: the checksum does not match: the file is damaged; copy it again", name);
  std::vector<CubinEntry> entries;
  while (!body.empty()) {
    auto entry = take_entry(&body);
    STOF_CHECK(entry.has_value(), kCorrupt, "{}: kernel {} is damaged; export it again", name,
               entries.size() + 1);
    entries.push_back(std::move(*entry));
  }
  STOF_CHECK(entries.size() == header.num_entries, kCorrupt, "{}: expected {} kernels, got {}",
             name, header.num_entries, entries.size());
  return entries;
}

}  // namespace stof::jit
