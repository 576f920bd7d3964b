#pragma once
// The header of a GGUF file: parsing and validation, apart from where the bytes are.

#include <map>
#include <span>
#include <string>

#include "stof/gguf.h"

namespace stof {

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Parses and validates the header of a whole file. Afterwards every tensor's data lies in the file
/// and overlaps no other's. Throws Corrupt or Unsupported. Allocates in proportion to the header
/// that is really there.
GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path);

}  // namespace stof
