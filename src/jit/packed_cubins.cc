#include "jit/packed_cubins.h"

#include "jit/cubin_archive.h"

namespace stof::jit {

PackedCubins::PackedCubins(std::string_view archive) {
  if (archive.empty()) return;
  for (CubinEntry& entry : parse_archive(archive, "the kernels inside the library"))
    cubins_.emplace(entry.content, std::move(entry.cubin));
}

const PackedCubins& PackedCubins::instance() {
  static const PackedCubins packed(packed_archive());
  return packed;
}

const std::string* PackedCubins::find(const Fingerprint& content) const {
  const auto found = cubins_.find(content);
  return found == cubins_.end() ? nullptr : &found->second;
}

}  // namespace stof::jit
