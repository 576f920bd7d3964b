#pragma once
// Several compiled kernels in one file: what `stof cache export` writes and the library may carry.

#include <string>
#include <string_view>
#include <vector>

#include "jit/cubin_entry.h"

namespace stof::jit {

/// Header (magic, count, length, checksum of the rest) and the entries, sorted by file name: equal
/// sets of kernels make equal archives.
std::string make_archive(std::vector<CubinEntry> entries);

/// All entries. Throws Corrupt naming `name` and what is wrong where any byte is: nothing of a
/// damaged archive is used.
std::vector<CubinEntry> parse_archive(std::string_view bytes, const std::string& name);

}  // namespace stof::jit
