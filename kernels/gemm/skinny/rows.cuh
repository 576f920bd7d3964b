#pragma once
// The rows of x that a block multiplies, in shared memory: as they are, or normalised on the way.

#include "elementwise/pack.cuh"
#include "gemm/skinny/config.cuh"
#include "ptx/async_copy.cuh"

namespace stof {

template <class D>
class SkinnyRows {
  using Element = typename D::Element;
  using Unit = Pack<8>;  // 16 bytes

 public:
  /// `shared`: of kTileM rows, kPitch bytes apart, columns from `begin` on, kSpan of them; what the
  /// matrix does not have is zero.
  __device__ __forceinline__ SkinnyRows(const SkinnyGemmParams& params, unsigned char* shared,
                                        u32 address, int begin)
      : params_(params), shared_(shared), address_(address), begin_(begin) {}

  __device__ __forceinline__ void load() const {
    if constexpr (D::kNorm) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      for (int row = warp; row < D::kTileM; row += D::kWarps) normalise(row);
    } else {
      for (int at = static_cast<int>(threadIdx.x); at < D::kTileM * kUnits; at += D::kThreads) {
        const int row = at / kUnits, column = begin_ + 8 * (at % kUnits);
        const bool inside = row < params_.rows && column < D::kIn;
        ptx::copy_16(address_ + row * D::kPitch + 16 * (at % kUnits),
                     inside ? source(row) + column : params_.x, inside ? 16 : 0);
      }
      ptx::commit_copies();
      ptx::wait_copies<0>();
    }
    __syncthreads();
  }

 private:
  static constexpr int kSpan = D::kChunks * D::kChunk, kUnits = kSpan / 8;
  static constexpr int kLaneUnits = (D::kIn + 255) / 256;  // of a whole row

  __device__ __forceinline__ const unsigned short* source(int row) const {
    return static_cast<const unsigned short*>(params_.x) + row * params_.x_stride;
  }

  /// Unit number `at` of a vector over K.
  static __device__ __forceinline__ void load_vector(const void* vector, int at, float (&out)[8]) {
    if constexpr (D::kFloatGamma) {
      const float4* const quads = static_cast<const float4*>(vector) + 2 * at;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 quad = quads[i];
        out[4 * i] = quad.x, out[4 * i + 1] = quad.y, out[4 * i + 2] = quad.z, out[4 * i + 3] = quad.w;
      }
    } else {
      unpack<Element>(static_cast<const Unit*>(vector)[at], out);
    }
  }

  /// function(value) of every element of the row, summed over the warp's lanes.
  template <class Function>
  __device__ __forceinline__ float sum_over_row(const unsigned short* row,
                                                const Function& function) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < kLaneUnits; ++i) {
      const int column = 8 * (32 * i + lane);
      if (column >= D::kIn) continue;
      float values[8];
      unpack<Element>(*reinterpret_cast<const Unit*>(row + column), values);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += function(values[k]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
    return sum;
  }

  /// By one warp: mean and scale are of all of K, what is kept of this block's part. The row is read
  /// anew each time, from the first-level cache: registers are taken by weights that are under way.
  /// The variance is that of centred values, so that a large mean does not cancel.
  __device__ __forceinline__ void normalise(int row) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const bool has_row = row < params_.rows;
    const unsigned short* const x = source(row);
    float mean = 0, scale = 0;
    if (has_row) {
      if constexpr (D::kCenter) mean = sum_over_row(x, [](float v) { return v; }) * (1.0f / D::kIn);
      const float squares = sum_over_row(x, [&](float v) { return (v - mean) * (v - mean); });
      scale = 1.0f / sqrtf(squares * (1.0f / D::kIn) + params_.epsilon);
    }
#pragma unroll 2
    for (int unit = lane; unit < kUnits; unit += 32) {
      const int column = begin_ + 8 * unit;
      Unit normal{};
      if (has_row && column < D::kIn) {
        float values[8], gamma[8], beta[8] = {};
        unpack<Element>(*reinterpret_cast<const Unit*>(x + column), values);
        load_vector(params_.gamma, column / 8, gamma);
        if constexpr (D::kCenter) load_vector(params_.beta, column / 8, beta);
#pragma unroll
        for (int k = 0; k < 8; ++k) values[k] = fmaf((values[k] - mean) * scale, gamma[k], beta[k]);
        normal = pack<Element>(values);
      }
      *reinterpret_cast<Unit*>(shared_ + row * D::kPitch + 16 * unit) = normal;
    }
  }

  const SkinnyGemmParams& params_;
  unsigned char* const shared_;
  const u32 address_;
  const int begin_;
};

}  // namespace stof
