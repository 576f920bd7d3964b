#pragma once
// The header of a .npy file: a Python dictionary literal of three known fields.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "stof/tensor.h"

namespace stof {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  Dims shape;
  bool fortran_order = false;
  std::size_t data_offset = 0;  ///< bytes from the start of the file
};

/// Parses magic, version and header of a whole file, and checks that what follows is exactly the
/// data of that dtype and shape. Throws Corrupt or Unsupported; allocates nothing of a claimed
/// size.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& path);

/// NumPy's name of a dtype, as "<f4"; empty where NumPy has none.
std::string_view npy_descr(DType dtype);

/// The bytes "\x93NUMPY".
inline constexpr std::string_view kNpyMagic{"\x93NUMPY", 6};

}  // namespace stof
