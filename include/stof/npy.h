#pragma once
// NumPy's .npy files (NEP 1; numpy.lib.format).

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "stof/tensor.h"

namespace stof {

/// Reads versions 1, 2 and 3; Fortran order becomes row-major. Throws NotFound, Io, Corrupt naming
/// the file and field, or Unsupported naming a big-endian, structured, object, string, date or
/// complex dtype.
Tensor load_npy(const std::string& path);

/// The same from memory; `name` stands for the path in errors.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

/// Writes version 1, row-major, all or nothing. Throws Unsupported for dtypes that NumPy lacks
/// (bfloat16, 8-bit floats).
void save_npy(const std::string& path, const TensorView& tensor);

/// The bytes that save_npy writes.
std::vector<std::byte> serialize_npy(const TensorView& tensor);

}  // namespace stof
