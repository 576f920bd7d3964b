#include "backend/cpu/attention/merge.h"

#include <cmath>
#include <limits>

#include "core/check.h"
#include "stof/attention.h"

namespace stof {
namespace cpu {

MergeWeights merge_weights(float lse_a, float lse_b) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  if (lse_a == kEmpty && lse_b == kEmpty) return {0, 0, kEmpty};
  const float top = std::fmax(lse_a, lse_b);
  const float a = std::exp(lse_a - top), b = std::exp(lse_b - top);
  return {a / (a + b), b / (a + b), top + std::log(a + b)};
}

}  // namespace cpu

namespace {

void check_state(const char* name, const TensorView& tensor, const Dims& shape) {
  STOF_CHECK(tensor.dtype == DType::kFloat32 && tensor.shape == shape, kInvalidArgument,
             "merge_attention_states {}: expected float32{}, got {}", name, shape.to_string(),
             tensor.describe());
  STOF_CHECK(tensor.defined() || num_elements(shape) == 0, kInvalidArgument,
             "merge_attention_states {}: expected an address, got a null pointer", name);
  STOF_CHECK(
      tensor.is_aligned(), kInvalidArgument,
      "merge_attention_states {}: expected an address that is a multiple of 4 bytes, got {}; "
      "copy the tensor first",
      name, tensor.data);
}

}  // namespace

void merge_attention_states(MutableTensorView out_a, MutableTensorView lse_a,
                            const TensorView& out_b, const TensorView& lse_b) {
  STOF_CHECK(out_a.shape.rank() == 2, kInvalidArgument,
             "merge_attention_states out_a: expected float32[rows, head_dim], got {}",
             TensorView(out_a).describe());
  const std::int64_t rows = out_a.shape[0], dim = out_a.shape[1];
  check_state("out_a", out_a, {rows, dim});
  check_state("lse_a", lse_a, {rows});
  check_state("out_b", out_b, {rows, dim});
  check_state("lse_b", lse_b, {rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    float& lse = static_cast<float*>(lse_a.data)[row * lse_a.strides[0]];
    const float other = static_cast<const float*>(lse_b.data)[row * lse_b.strides[0]];
    const cpu::MergeWeights weights = cpu::merge_weights(lse, other);
    lse = weights.lse;
    for (std::int64_t d = 0; d < dim; ++d) {
      float& a = static_cast<float*>(out_a.data)[row * out_a.strides[0] + d * out_a.strides[1]];
      const float b =
          static_cast<const float*>(out_b.data)[row * out_b.strides[0] + d * out_b.strides[1]];
      // A weight of 0 forgets its state even where that holds infinities or NaN.
      a = (weights.a == 0 ? 0 : weights.a * a) + (weights.b == 0 ? 0 : weights.b * b);
    }
  }
}

}  // namespace stof
