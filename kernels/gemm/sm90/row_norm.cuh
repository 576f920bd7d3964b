#pragma once
// LayerNorm or RMSNorm of whole rows that the blocks of a cluster have a column tile of each: every
// block sums up its part, tells the others, and normalises its own columns.

#include "gemm/sm90/config.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"

namespace stof {

template <class D>
class RowNorm {
 public:
  __device__ RowNorm(const GemmParams& params, unsigned char* shared, int warp)
      : params_(params),
        shared_(shared),
        base_(ptx::shared_address(shared)),
        barriers_{base_ + D::kBarrierOffset},
        warp_(warp) {}

  /// Sums of this block's columns of the slab: of the values, and of squares of their distance from
  /// the block's own mean, so that a large mean does not cancel (RMSNorm: from 0).
  __device__ __forceinline__ void measure(const float (&values)[D::kAccumulators], int slab) {
    float sum[2] = {}, squares[2] = {};
    if constexpr (D::kCenter) {
#pragma unroll
      for (int i = 0; i < D::kAccumulators; ++i) sum[i >> 1 & 1] += values[i];
      reduce(sum);
    }
#pragma unroll
    for (int i = 0; i < D::kAccumulators; ++i) {
      const float away = values[i] - sum[i >> 1 & 1] * (1.0f / D::kTileN);
      squares[i >> 1 & 1] += away * away;
    }
    reduce(squares);
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[slab][r] = sum[r], squares_[slab][r] = squares[r];
  }

  /// Of all slabs at once, exchange number `count` of this warp: means and scales of whole rows.
  __device__ __forceinline__ void exchange(u32 count) {
    float total[D::kSlabs][2];
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
      for (int r = 0; r < 2; ++r) total[slab][r] = sum_[slab][r];
    if constexpr (D::kHears > 0) {
      if (count == 0) ptx::cluster_wait();  // the others' barriers are ready
      const u32 buffer = count & 1;
      tell(buffer);
      ptx::wait_for_cluster(barriers_.hear(warp_, buffer), count >> 1 & 1);
      __syncwarp();
#pragma unroll
      for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
        for (int source = 0; source < D::kHears; ++source) {
          const float4 part = heard(buffer, source, slab);
          total[slab][0] += part.x, total[slab][1] += part.z;
        }
    }
    const float share = 1.0f / static_cast<float>(params_.columns);
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab) {
      float squares[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        mean_[slab][r] = total[slab][r] * share;
        squares[r] = about_mean(sum_[slab][r], squares_[slab][r], mean_[slab][r]);
      }
#pragma unroll
      for (int source = 0; source < D::kHears; ++source) {
        const float4 part = heard(count & 1, source, slab);
        squares[0] += about_mean(part.x, part.y, mean_[slab][0]);
        squares[1] += about_mean(part.z, part.w, mean_[slab][1]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        scale_[slab][r] = 1.0f / sqrtf(squares[r] * share + params_.epsilon);
    }
  }

  __device__ __forceinline__ float normal(float value, int slab, int r) const {
    return (value - mean_[slab][r]) * scale_[slab][r];
  }

 private:
  /// Over the four lanes that share two rows.
  static __device__ __forceinline__ void reduce(float (&sums)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int offset = 1; offset < 4; offset <<= 1)
        sums[r] += __shfl_xor_sync(~0u, sums[r], offset);
  }

  /// Squares of distances from the row's mean, from those about a block's own (RMSNorm: both 0).
  static __device__ __forceinline__ float about_mean(float sum, float squares, float mean) {
    const float away = sum * (1.0f / D::kTileN) - mean;
    return squares + D::kTileN * away * away;
  }

  /// Where a block hears from its source number `source` (itself left out) for this warp.
  __device__ __forceinline__ int area(u32 buffer, int source, int slab) const {
    return D::kHearOffset + ((2 * warp_ + static_cast<int>(buffer)) * D::kHears + source) * D::kHearBytes +
           slab * 128 + (static_cast<int>(threadIdx.x) & 31) / 4 * 16;
  }
  __device__ __forceinline__ float4 heard(u32 buffer, int source, int slab) const {
    return *reinterpret_cast<const float4*>(shared_ + area(buffer, source, slab));
  }

  /// Of the four lanes with the same sums each tells every fourth block.
  __device__ __forceinline__ void tell(u32 buffer) const {
    const int lane = static_cast<int>(threadIdx.x) & 31, self = static_cast<int>(ptx::cluster_rank());
    const u32 own = barriers_.hear(warp_, buffer);
    if (lane == 0) ptx::arrive_expect_bytes(own, D::kHears * D::kHearBytes);
    for (int block = lane & 3; block < D::kClusterN; block += 4) {
      if (block == self) continue;
      const u32 barrier = ptx::address_in_block(own, block);
#pragma unroll
      for (int slab = 0; slab < D::kSlabs; ++slab)
        ptx::store_async(
            ptx::address_in_block(base_ + area(buffer, self < block ? self : self - 1, slab), block),
            sum_[slab][0], squares_[slab][0], sum_[slab][1], squares_[slab][1], barrier);
    }
  }

  const GemmParams& params_;
  unsigned char* shared_;
  const u32 base_;
  const GemmBarriers<D> barriers_;
  const int warp_;
  float sum_[D::kSlabs][2], squares_[D::kSlabs][2];  // of this block's columns
  float mean_[D::kSlabs][2], scale_[D::kSlabs][2];
};

}  // namespace stof
