#pragma once
// Two neighbouring columns of a row, with their partners where they have some, from their sums to
// memory.
//
// `Steps` (emitted by src/codegen/gemm_skinny.cc) calls the steps below in the order of the problem.

#include "elementwise/activation.cuh"
#include "elementwise/rotation.cuh"
#include "gemm/skinny/config.cuh"
#include "gemm/value_steps.cuh"

namespace stof {

template <class D>
class SkinnyEpilogue {
  using Element = typename D::Element;

 public:
  /// `column`: the first, of y; `shared`: the block's, with what SkinnyRows has sent for.
  __device__ __forceinline__ SkinnyEpilogue(const SkinnyGemmParams& params,
                                            const unsigned char* shared, i32 row, i32 column)
      : params_(params), shared_(shared), row_(row), column_(column) {}

  // With a gate values 0 and 1 are gates of 2 and 3; where heads are turned 2 and 3 lie half a head
  // further.

  template <int kCount>
  __device__ __forceinline__ void add_bias(float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const i32 column =
          column_ + i * (D::kRopeDim > 0 ? D::kRopeDim / 2 : params_.columns / 2);
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
  /// Adds the bias, if any, and turns heads of queries and keys.
  __device__ __forceinline__ void rotated(float (&values)[4]) const {
    if constexpr (D::kBias) add_bias(values);
    if (column_ >= params_.rotated) return;
    const auto position =
        static_cast<float>(reinterpret_cast<const i32*>(shared_ + D::kPositionOffset)[row_]);
    const float2 turn = *reinterpret_cast<const float2*>(
        shared_ + D::kFrequencyOffset + 4 * (column_ % (D::kRopeDim / 2)));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float cosine, sine;
      cos_sin(position * (i == 0 ? turn.x : turn.y), cosine, sine);
      const float low = values[i], high = values[2 + i];
      values[i] = low * cosine - high * sine;
      values[2 + i] = high * cosine + low * sine;
    }
  }
  template <int kCount>
  __device__ __forceinline__ void store(const float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const i32 column = column_ + i * (D::kRopeDim / 2);
      const u32 pair = Element::pack(values[2 * i], values[2 * i + 1]);
      *pair_of(params_.y, row_ * params_.y_stride + column) = pair;
      if constexpr (D::kCache) {
        if (column < params_.cached) continue;
        const i32 slot = reinterpret_cast<const i32*>(shared_ + D::kSlotOffset)[row_];
        if (slot >= 0)
          *pair_of(params_.cache, slot * params_.cache_stride + column - params_.cached) = pair;
      }
    }
  }

 private:
  static __device__ __forceinline__ u32* pair_of(void* elements, i64 at) {
    return reinterpret_cast<u32*>(static_cast<unsigned short*>(elements) + at);
  }
  static __device__ __forceinline__ float2 pair_at(const void* elements, i64 at) {
    const u32 pair =
        *reinterpret_cast<const u32*>(static_cast<const unsigned short*>(elements) + at);
    return make_float2(Element::low(pair), Element::high(pair));
  }

  const SkinnyGemmParams& params_;
  const unsigned char* const shared_;
  const i32 row_, column_;
};

}  // namespace stof
