#pragma once
// Element types, and the two 16-bit floats that C++20 lacks.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stof {

/// Element type of a tensor. Attention and models compute on the first three; the rest can be
/// read from and written to files.
enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kFloat8E4M3,
  kFloat8E5M2,
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
};

/// Bytes of one element.
std::size_t dtype_bytes(DType dtype);

/// "float32", "bfloat16", "bool", ... as NumPy and PyTorch spell them.
std::string_view to_string(DType dtype);

/// Inverse of to_string; also takes "fp32", "fp16", "bf16". Throws InvalidArgument naming the
/// known names.
DType dtype_from_string(std::string_view name);

/// IEEE 754 binary16. Conversion rounds to nearest, ties to even; NaN stays NaN (quiet, payload's
/// top bits kept), overflow becomes infinity, subnormals are exact.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

/// bfloat16: the upper half of a binary32. Same rounding and NaN rules as Float16.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);

/// The DType of C++ type T; not defined for types that are no element type.
template <class T>
extern const DType kDTypeOf;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<std::uint16_t> = DType::kUInt16;
template <>
inline constexpr DType kDTypeOf<std::int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<std::uint32_t> = DType::kUInt32;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<std::uint64_t> = DType::kUInt64;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;

}  // namespace stof
