#pragma once
// y = steps(x W^T) of few rows, x as it is or normalised first: W goes once from memory into
// registers, in the order in which mma.sync takes it. README.md beside this has roofline and
// schedule.

#include "ptx/arrivals.cuh"
#include "gemm/skinny/epilogue.cuh"
#include "gemm/skinny/rows.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/matrix.cuh"
#include "ptx/stream_load.cuh"

namespace stof {

/// The first column of y of sixteen rows of W in a tile. Where heads are turned they are eight columns
/// of a head's first half and those of its second half that belong to them.
template <class D>
__device__ __forceinline__ i32 first_column(i32 tile, int sixteen) {
  if constexpr (D::kRopeDim > 0) {
    constexpr int kEights = D::kRopeDim / 16;  // of half a head
    const i32 at = tile * D::kWarpsN + sixteen;
    return at / kEights * D::kRopeDim + at % kEights * 8;
  } else {
    return tile * D::kOutN + 16 * sixteen;
  }
}

/// Sixteen rows of W by the lanes of a warp. A lane's eight neighbouring elements of two rows are its
/// operands of two products: which columns of K an operand's place stands for is free, as long as
/// x has the same.
template <class D>
class SkinnyWeights {
 public:
  uint4 units[D::kUnroll][2];

  /// Chunk `chunk` of K of the warp's rows in a tile; what W does not have is zero.
  __device__ __forceinline__ void load(const SkinnyGemmParams& params, i32 tile, int warp_n,
                                       int chunk) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const i32 part_columns = params.columns / (D::kGate ? 2 : 1);
    // With a gate the first half of the tile's rows are gates; where heads are turned the second
    // eight of a warp's rows are those that the first eight are mixed with.
    constexpr int kHalf = D::kWarpsN / 2;
    const bool second = D::kGate && warp_n >= kHalf;
    const i32 first = first_column<D>(tile, second ? warp_n - kHalf : warp_n) + lane / 4;
    constexpr int kSecond = D::kRopeDim > 0 ? D::kRopeDim / 2 : 8;
    const unsigned short* const w = static_cast<const unsigned short*>(params.w) +
                                    static_cast<i64>(first + (second ? part_columns : 0)) * D::kIn;
    const int column = chunk * D::kChunk + 8 * (lane & 3);
#pragma unroll
    for (int u = 0; u < D::kUnroll; ++u)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const bool inside = first + kSecond * r < part_columns &&
                            (D::kIn % D::kChunk == 0 || column + 32 * u < D::kIn);
        units[u][r] = inside ? ptx::load_streamed(w + kSecond * r * D::kIn + column + 32 * u)
                             : make_uint4(0, 0, 0, 0);
      }
  }

  /// Adds the products with the rows of x at `x`: the chunk's first column.
  __device__ __forceinline__ void multiply(const unsigned char* x,
                                           float (&sums)[D::kGroups][4]) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    x += lane / 4 * D::kPitch + 16 * (lane & 3);
#pragma unroll
    for (int u = 0; u < D::kUnroll; ++u) {
      const uint4 &upper = units[u][0], &lower = units[u][1];
      const u32 first[4] = {upper.x, lower.x, upper.y, lower.y};
      const u32 second[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
      for (int group = 0; group < D::kGroups; ++group) {
        const uint4 rows = *reinterpret_cast<const uint4*>(x + 8 * group * D::kPitch + 64 * u);
        ptx::multiply(typename D::Element{}, sums[group], first, rows.x, rows.y);
        ptx::multiply(typename D::Element{}, sums[group], second, rows.z, rows.w);
      }
    }
  }
};

/// The sums of a block's warps, and of the blocks that share a tile, to results.
template <class D>
class SkinnySums {
 public:
  __device__ __forceinline__ SkinnySums(const SkinnyGemmParams& params, unsigned char* shared)
      : params_(params),
        shared_(shared),
        sums_(reinterpret_cast<float*>(shared + D::kSumOffset)),
        flag_(reinterpret_cast<u32*>(shared + D::kFlagOffset)) {}

  __device__ __forceinline__ void put(const float (&sums)[D::kGroups][4], int warp_n,
                                      int warp_k) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    float* const at = sums_ + (warp_k * D::kTileM + 2 * (lane & 3)) * D::kSumPitch + 16 * warp_n + lane / 4;
#pragma unroll
    for (int group = 0; group < D::kGroups; ++group)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        at[(8 * group + (i & 1)) * D::kSumPitch + 8 * (i >> 1)] = sums[group][i];
  }

  /// After put() of all warps and a barrier.
  __device__ __forceinline__ void finish(i32 tile, int part) const {
    if constexpr (D::kSplits > 1) {
      for_each_pair([&](int row, int column) {
        float values[kValues];
        add_up(row, column, values);
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i)
          *partial(tile, part, row, column + i * D::kPartner) =
              make_float2(values[2 * i], values[2 * i + 1]);
      });
      if (!is_last_to_arrive(&params_.arrivals[tile], D::kSplits, flag_)) return;
    }
    for_each_pair([&](int row, int column) {
      const i32 out = first_column<D>(tile, column / 16) + column % 16;
      if (row >= params_.rows || out >= params_.columns / (D::kGate ? 2 : 1)) return;
      float values[kValues] = {};
      if constexpr (D::kSplits > 1) {
#pragma unroll
        for (int source = 0; source < D::kSplits; ++source)
#pragma unroll
          for (int i = 0; i < kValues / 2; ++i) {
            const float2 two = __ldcg(partial(tile, source, row, column + i * D::kPartner));
            values[2 * i] += two.x, values[2 * i + 1] += two.y;
          }
      } else {
        add_up(row, column, values);
      }
      SkinnyEpilogue<D> epilogue(params_, shared_, row, out);
      Steps::apply(epilogue, values);
    });
  }

 private:
  static constexpr int kValues = D::kPaired ? 4 : 2;

  /// visit(row, column in the tile) of two neighbouring columns, with their partners where they have
  /// some.
  template <class Visit>
  static __device__ __forceinline__ void for_each_pair(const Visit& visit) {
    constexpr int kPairs = D::kTileN / kValues;
    for (int at = static_cast<int>(threadIdx.x); at < D::kTileM * kPairs; at += D::kThreads) {
      const int pair = at % kPairs;
      visit(at / kPairs, D::kRopeDim > 0 ? pair / 4 * 16 + pair % 4 * 2 : 2 * pair);
    }
  }
  __device__ __forceinline__ void add_up(int row, int column, float (&values)[kValues]) const {
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] = 0;
#pragma unroll 4
    for (int warp = 0; warp < D::kWarpsK; ++warp)
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) {
        const float2 two = *reinterpret_cast<const float2*>(
            sums_ + (warp * D::kTileM + row) * D::kSumPitch + column + i * D::kPartner);
        values[2 * i] += two.x, values[2 * i + 1] += two.y;
      }
  }
  __device__ __forceinline__ float2* partial(i32 tile, int part, int row, int column) const {
    return reinterpret_cast<float2*>(
        params_.partials +
        ((static_cast<i64>(tile) * D::kSplits + part) * D::kTileM + row) * D::kTileN + column);
  }

  const SkinnyGemmParams& params_;
  const unsigned char* const shared_;
  float* const sums_;
  u32* const flag_;
};

template <class Config>
__device__ __forceinline__ void skinny_gemm(const SkinnyGemmParams& params) {
  using D = SkinnyGemmSizes<Config>;
  extern __shared__ __align__(128) unsigned char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_n = warp % D::kWarpsN, warp_k = warp / D::kWarpsN;
  const int part = static_cast<int>(blockIdx.x) % D::kSplits;
  const int begin = part * D::kAllChunks / D::kSplits;
  const int chunks = (part + 1) * D::kAllChunks / D::kSplits - begin;
  const i32 stride = static_cast<i32>(gridDim.x) / D::kSplits;
  i32 tile = static_cast<i32>(blockIdx.x) / D::kSplits;

  // Weights are under way before the previous kernel has ended, and the next tile's before this
  // one's sums are finished.
  SkinnyWeights<D> next;
  if (warp_k < chunks) next.load(params, tile, warp_n, begin + warp_k);
  const SkinnyRows<D> rows(params, shared, ptx::shared_address(shared), begin * D::kChunk);
  rows.prefetch();
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  rows.load();

  const SkinnySums<D> results(params, shared);
  for (; tile < params.tiles; tile += stride) {
    float sums[D::kGroups][4] = {};
#pragma unroll 2
    for (int step = 0; step < D::kSteps; ++step) {
      const int chunk = warp_k + step * D::kWarpsK;
      if (chunk >= chunks) break;
      const SkinnyWeights<D> weights = next;
      if (step + 1 < D::kSteps && chunk + D::kWarpsK < chunks)
        next.load(params, tile, warp_n, begin + chunk + D::kWarpsK);
      else if (tile + stride < params.tiles)
        next.load(params, tile + stride, warp_n, begin + warp_k);
      weights.multiply(shared + chunk * D::kChunk * 2, sums);
    }
    results.put(sums, warp_n, warp_k);
    __syncthreads();
    results.finish(tile, part);
    __syncthreads();  // read by all before the next tile's sums take their place
  }
}

}  // namespace stof
