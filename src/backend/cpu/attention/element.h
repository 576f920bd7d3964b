#pragma once
// Single elements of strided views in double, for code that is slow on purpose.

#include <initializer_list>

#include "core/check.h"
#include "stof/tensor.h"

namespace stof::cpu {

inline std::int64_t element_offset(const Dims& strides, std::initializer_list<std::int64_t> index) {
  std::int64_t offset = 0;
  int i = 0;
  for (const std::int64_t position : index) offset += position * strides[i++];
  return offset;
}

/// Element of a float32, float16, bfloat16, int64, int32 or bool view.
inline double load_element(const TensorView& tensor, std::initializer_list<std::int64_t> index) {
  const std::int64_t offset = element_offset(tensor.strides, index);
  switch (tensor.dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(tensor.data)[offset];
    case DType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(tensor.data)[offset]);
    case DType::kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(tensor.data)[offset]);
    case DType::kInt64:
      return static_cast<double>(static_cast<const std::int64_t*>(tensor.data)[offset]);
    case DType::kInt32:
      return static_cast<const std::int32_t*>(tensor.data)[offset];
    case DType::kBool:
      return static_cast<const std::uint8_t*>(tensor.data)[offset];
    default:
      throw_error(ErrorCode::kInternal, "no element access for {}", to_string(tensor.dtype));
  }
}

inline void store_element(const MutableTensorView& tensor,
                          std::initializer_list<std::int64_t> index, double value) {
  const std::int64_t offset = element_offset(tensor.strides, index);
  const auto rounded = static_cast<float>(value);
  switch (tensor.dtype) {
    case DType::kFloat32:
      static_cast<float*>(tensor.data)[offset] = rounded;
      return;
    case DType::kFloat16:
      static_cast<Float16*>(tensor.data)[offset] = Float16(rounded);
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(tensor.data)[offset] = BFloat16(rounded);
      return;
    case DType::kInt64:
      static_cast<std::int64_t*>(tensor.data)[offset] = static_cast<std::int64_t>(value);
      return;
    case DType::kInt32:
      static_cast<std::int32_t*>(tensor.data)[offset] = static_cast<std::int32_t>(value);
      return;
    case DType::kBool:
      static_cast<std::uint8_t*>(tensor.data)[offset] = value != 0;
      return;
    default:
      throw_error(ErrorCode::kInternal, "no element access for {}", to_string(tensor.dtype));
  }
}

}  // namespace stof::cpu
