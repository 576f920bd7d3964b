#pragma once
// The JSON header of a safetensors file: parsing and validation, apart from where the bytes are.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stof/safetensors.h"

namespace stof {

/// Bytes of the header length in front of the header.
inline constexpr std::uint64_t kSafetensorsPrefixBytes = 8;

/// The format's own limit on the header. A model has some hundred bytes of header per tensor.
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

/// Spelling of a dtype in the format: "F32", "BF16", ...
std::string_view safetensors_dtype_name(DType dtype);

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    DType dtype;
    Dims shape;
    std::uint64_t begin, end;  ///< bytes, from the start of the data section
  };
  Metadata metadata;
  std::vector<Tensor> tensors;  ///< in the order of the data
  std::uint64_t data_offset;    ///< of the data section in the file
};

/// Parses and validates the header of a whole file. Afterwards the tensors tile the data section
/// without gap or overlap, and each one's byte count is that of its dtype and shape. Throws Corrupt
/// or Unsupported. Allocates in proportion to the header that is really there.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& path);

}  // namespace stof
