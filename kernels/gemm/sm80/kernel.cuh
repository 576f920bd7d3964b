#pragma once
// y = steps(x W^T) from compute capability 8.0 on: one tile (or part of its sum) a block,
// asynchronous copies through a ring of stages, mma.sync. README.md beside this has roofline and
// schedule.

#include "ptx/arrivals.cuh"
#include "gemm/sm80/epilogue.cuh"
#include "gemm/sm80/loader.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/matrix.cuh"

namespace stof {

/// What a warp reads of one step of 16 columns, and its products.
template <class D>
class Sm80Products {
 public:
  float accumulators[D::kSlabs][D::kValues];

  __device__ __forceinline__ Sm80Products(u32 shared, int warp) : shared_(shared) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    x_row_ = warp / D::kWarpsN * D::kWarpM + (lane & 15);
    x_unit_ = lane >> 4;
    // Of a gate's tile the warp has as many columns of the first half as of the second.
    w_row_ = warp % D::kWarpsN * (D::kWarpN / (D::kGate ? 2 : 1)) + (lane >> 4) * 8 + (lane & 7);
    w_unit_ = lane >> 3 & 1;
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
      for (int i = 0; i < D::kValues; ++i) accumulators[slab][i] = 0;
  }

  __device__ __forceinline__ void load(int stage, int step, int buffer) {
    const u32 x = shared_ + stage * D::kStageBytes, w = x + D::kXBytes;
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab)
      ptx::load_matrices(x_[buffer][slab], at(x, x_row_ + 16 * slab, 2 * step + x_unit_));
#pragma unroll
    for (int pair = 0; pair < D::kGroups / 2; ++pair) {
      constexpr int kHalf = D::kGroups / 4;
      const int first = D::kGate && pair >= kHalf ? D::kTileN / 2 + 16 * (pair - kHalf) : 16 * pair;
      ptx::load_matrices(w_[buffer][pair], at(w, w_row_ + first, 2 * step + w_unit_));
    }
  }

  __device__ __forceinline__ void multiply(int buffer) {
#pragma unroll
    for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
      for (int group = 0; group < D::kGroups; ++group) {
        const u32* const w = &w_[buffer][group / 2][2 * (group % 2)];
        ptx::multiply(typename D::Element{}, &accumulators[slab][4 * group], x_[buffer][slab], w[0],
                      w[1]);
      }
  }

 private:
  static __device__ __forceinline__ u32 at(u32 matrix, int row, int unit) {
    return matrix + row * D::kRowBytes + 16 * unit_of<D::kUnits>(row, unit);
  }
  const u32 shared_;
  int x_row_, x_unit_, w_row_, w_unit_;
  u32 x_[2][D::kSlabs][4], w_[2][D::kGroups / 2][4];
};

/// Adds up what the blocks of a tile have, in their order, in the block that comes last. False: this
/// one is not the last.
template <class D>
__device__ __forceinline__ bool gather_splits(const Sm80GemmParams& params, i32 tile, i32 part,
                                              float (&accumulators)[D::kSlabs][D::kValues],
                                              u32* flag) {
  constexpr int kQuads = D::kGroups;
  const i64 all = static_cast<i64>(D::kSlabs) * kQuads * D::kThreads;  // of a block
  float4* const parts = params.partials + tile * D::kSplits * all + threadIdx.x;
#pragma unroll
  for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float* const v = &accumulators[slab][4 * q];
      parts[part * all + (slab * kQuads + q) * D::kThreads] = make_float4(v[0], v[1], v[2], v[3]);
    }
  if (!is_last_to_arrive(&params.arrivals[tile], D::kSplits, flag)) return false;
#pragma unroll
  for (int slab = 0; slab < D::kSlabs; ++slab)
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      float sum[4] = {};
#pragma unroll
      for (int source = 0; source < D::kSplits; ++source) {
        const float4 v = __ldcg(&parts[source * all + (slab * kQuads + q) * D::kThreads]);
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulators[slab][4 * q + i] = sum[i];
    }
  return true;
}

template <class Config>
__device__ __forceinline__ void sm80_gemm(const Sm80GemmParams& params) {
  using D = Sm80GemmSizes<Config>;
  extern __shared__ __align__(128) unsigned char shared[];
  const u32 base = ptx::shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const i32 index = static_cast<i32>(blockIdx.x) / D::kSplits;
  const i32 part = static_cast<i32>(blockIdx.x) % D::kSplits;
  const TilePlace tile = tile_place(params, index);
  const i32 all_blocks = (params.in + D::kTileK - 1) / D::kTileK;
  const i32 begin = part * all_blocks / D::kSplits;
  const i32 blocks = (part + 1) * all_blocks / D::kSplits - begin;
  const Sm80Loader<D> loader(params, tile, base);
  ptx::allow_next_kernel();

  // Weights of the first stages are under way before the previous kernel has ended, where launches
  // overlap; what that kernel may have written is not.
  constexpr int kAhead = D::kStages - 1;
  if constexpr (ptx::kStartsEarly) {
#pragma unroll
    for (int block = 0; block < kAhead; ++block)
      if (block < blocks) loader.load_w(block, (begin + block) * D::kTileK);
    ptx::wait_for_previous_kernel();
  }
#pragma unroll
  for (int block = 0; block < kAhead; ++block) {
    if (block < blocks) {
      if constexpr (!ptx::kStartsEarly) loader.load_w(block, (begin + block) * D::kTileK);
      loader.load_x(block, (begin + block) * D::kTileK);
    }
    ptx::commit_copies();
  }

  Sm80Products<D> products(base, warp);
  ptx::wait_copies<kAhead - 1>();
  __syncthreads();
  products.load(0, 0, 0);
  int stage = 0, free_stage = kAhead;
  for (i32 block = 0; block < blocks; ++block) {
#pragma unroll
    for (int step = 0; step < D::kSteps; ++step) {
      if (step + 1 < D::kSteps) {
        products.load(stage, step + 1, (step + 1) & 1);
      } else {
        stage = stage + 1 == D::kStages ? 0 : stage + 1;
        ptx::wait_copies<kAhead - 1>();
        __syncthreads();  // the next block has arrived, and this one has been read
        if (block + 1 < blocks) products.load(stage, 0, 0);
      }
      if (step == 0) {
        // Into the stage that every warp has left behind at the last barrier.
        if (block + kAhead < blocks) {
          const i32 k = (begin + block + kAhead) * D::kTileK;
          loader.load_x(free_stage, k);
          loader.load_w(free_stage, k);
        }
        ptx::commit_copies();
        free_stage = free_stage + 1 == D::kStages ? 0 : free_stage + 1;
      }
      products.multiply(step & 1);
    }
  }

  if constexpr (D::kSplits > 1) {
    u32* const flag = reinterpret_cast<u32*>(shared + D::kFlagOffset);
    if (!gather_splits<D>(params, index, part, products.accumulators, flag)) return;
  }
  // Nothing is under way and nobody reads the stages any more: the last barrier was behind both.
  Sm80Epilogue<D> epilogue(params, tile, shared, base, warp);
  epilogue.begin();
#pragma unroll
  for (int slab = 0; slab < D::kSlabs; ++slab) epilogue.finish(products.accumulators[slab], slab);
}

}  // namespace stof
