#pragma once
// Element-wise copies out of strided views.

#include "stof/tensor.h"

namespace stof {

/// Copies `source` in row-major order to `destination`, which has room for all its elements.
void copy_strided(const TensorView& source, void* destination);

/// Throws Unsupported naming both dtypes where convert_strided has no conversion.
void check_convertible(DType from, DType to);

/// As copy_strided, with a conversion to `dtype`.
void convert_strided(const TensorView& source, DType dtype, void* destination);

/// The two 8-bit floats of "FP8 Formats for Deep Learning" (Micikevicius et al. 2022,
/// arXiv 2209.05433): E4M3 has no infinities and one NaN, E5M2 is a truncated binary16.
float float8_e4m3_to_float(std::uint8_t bits);
float float8_e5m2_to_float(std::uint8_t bits);

}  // namespace stof
