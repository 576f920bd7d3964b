#pragma once
// Two neighbouring columns of a row, from their sums to memory.
//
// `Steps` (emitted by src/codegen/gemm_skinny.cc) calls the steps below in the order of the problem.

#include "elementwise/activation.cuh"
#include "gemm/skinny/config.cuh"
#include "gemm/value_steps.cuh"

namespace stof {

template <class D>
class SkinnyEpilogue {
  using Element = typename D::Element;

 public:
  /// `column`: the first, of y.
  __device__ __forceinline__ SkinnyEpilogue(const SkinnyGemmParams& params, i32 row, i32 column)
      : params_(params), row_(row), column_(column) {}

  // With a gate values 0 and 1 are gates of 2 and 3.

  template <int kCount>
  __device__ __forceinline__ void add_bias(float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const i32 column = column_ + i * (params_.columns / 2);
      float2 bias;
      if constexpr (D::kFloatBias) {
        bias = *reinterpret_cast<const float2*>(static_cast<const float*>(params_.bias) + column);
      } else {
        bias = pair_at(params_.bias, column);
      }
      values[2 * i] += bias.x, values[2 * i + 1] += bias.y;
    }
  }
  template <int kCount, class Function>
  __device__ __forceinline__ void activate(float (&values)[kCount], const Function& function) const {
    values::activate(values, function);
  }
  template <int kCount, class Function>
  __device__ __forceinline__ void gate(const float (&values)[2 * kCount], float (&gated)[kCount],
                                       const Function& function) const {
    values::gate(values, gated, function);
  }
  __device__ __forceinline__ void add_residual(float (&values)[2]) const {
    const float2 more = pair_at(params_.residual, row_ * params_.residual_stride + column_);
    values[0] += more.x, values[1] += more.y;
  }
  __device__ __forceinline__ void store(const float (&values)[2]) const {
    *reinterpret_cast<u32*>(static_cast<unsigned short*>(params_.y) + row_ * params_.y_stride +
                            column_) = Element::pack(values[0], values[1]);
  }

 private:
  static __device__ __forceinline__ float2 pair_at(const void* elements, i64 at) {
    const u32 pair =
        *reinterpret_cast<const u32*>(static_cast<const unsigned short*>(elements) + at);
    return make_float2(Element::low(pair), Element::high(pair));
  }

  const SkinnyGemmParams& params_;
  const i32 row_, column_;
};

}  // namespace stof
