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

/// Element of a float32, float16 or bfloat16 view.
inline double load_element(const TensorView& tensor, std::initializer_list<std::int64_t> index) {
  const std::int64_t offset = element_offset(tensor.strides, index);
  switch (tensor.dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(tensor.data)[offset];
    case DType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(tensor.data)[offset]);
    case DType::kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(tensor.data)[offset]);
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
    default:
      throw_error(ErrorCode::kInternal, "no element access for {}", to_string(tensor.dtype));
  }
}

}  // namespace stof::cpu
