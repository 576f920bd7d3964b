#include "stof/dtype.h"

#include <bit>
#include <string>

#include "core/check.h"

namespace stof {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::kFloat32, "float32", 4},
    {DType::kFloat16, "float16", 2},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kFloat64, "float64", 8},
    {DType::kFloat8E4M3, "float8_e4m3fn", 1},
    {DType::kFloat8E5M2, "float8_e5m2", 1},
    {DType::kBool, "bool", 1},
    {DType::kUInt8, "uint8", 1},
    {DType::kInt8, "int8", 1},
    {DType::kUInt16, "uint16", 2},
    {DType::kInt16, "int16", 2},
    {DType::kUInt32, "uint32", 4},
    {DType::kInt32, "int32", 4},
    {DType::kUInt64, "uint64", 8},
    {DType::kInt64, "int64", 8},
};

const DTypeInfo& info_of(DType dtype) {
  for (const DTypeInfo& info : kDTypes)
    if (info.dtype == dtype) return info;
  throw_error(ErrorCode::kInvalidArgument, "dtype: {} is not a value of stof::DType",
              static_cast<int>(dtype));
}

constexpr std::uint32_t kFloatInfinity = 0x7f800000u;

}  // namespace

std::size_t dtype_bytes(DType dtype) { return info_of(dtype).bytes; }

std::string_view to_string(DType dtype) { return info_of(dtype).name; }

DType dtype_from_string(std::string_view name) {
  if (name == "fp32") return DType::kFloat32;
  if (name == "fp16") return DType::kFloat16;
  if (name == "bf16") return DType::kBFloat16;
  std::string known = "fp32, fp16, bf16";
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
    known += ", ";
    known += info.name;
  }
  throw_error(ErrorCode::kInvalidArgument, "dtype: expected one of {}; got \"{}\"", known, name);
}

Float16::Float16(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = all & 0x7fffffffu;
  std::uint32_t result;
  if (magnitude > kFloatInfinity) {
    result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // 0x7e00 sets the quiet bit
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;  // 65520 lies halfway between the largest half and 2^16: ties to even is up
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 halves are multiples of 2^-24, which is the spacing of floats at 0.5: the
    // addition rounds as wanted.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    result = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  } else {
    const std::uint32_t tie_to_even = (magnitude >> 13) & 1u;
    const std::uint32_t rebias = 112u << 23;  // exponent bias 127 - 15
    result = (magnitude - rebias + 0xfffu + tie_to_even) >> 13;
  }
  bits = static_cast<std::uint16_t>(((all >> 16) & 0x8000u) | result);
}

Float16::operator float() const {
  const std::uint32_t magnitude = bits & 0x7fffu;
  // Scaling by 2^112 corrects the exponent bias and normalises subnormals exactly.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  std::uint32_t result = std::bit_cast<std::uint32_t>(scaled);
  if (magnitude >= 0x7c00u) result = kFloatInfinity | (magnitude & 0x3ffu) << 13;
  if (magnitude > 0x7c00u) result |= 0x00400000u;  // a signalling NaN becomes quiet
  return std::bit_cast<float>(result | (bits & 0x8000u) << 16);
}

BFloat16::BFloat16(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  if ((all & 0x7fffffffu) > kFloatInfinity) {
    bits = static_cast<std::uint16_t>(all >> 16 | 0x0040u);  // quiet; rounding could carry out
    return;
  }
  const std::uint32_t tie_to_even = (all >> 16) & 1u;
  bits = static_cast<std::uint16_t>((all + 0x7fffu + tie_to_even) >> 16);
}

BFloat16::operator float() const {
  std::uint32_t result = static_cast<std::uint32_t>(bits) << 16;
  if ((result & 0x7fffffffu) > kFloatInfinity) result |= 0x00400000u;
  return std::bit_cast<float>(result);
}

}  // namespace stof
