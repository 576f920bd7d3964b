#pragma once
// From token states to one vector a text. A block takes 256 columns of one text: its eight warps walk
// every eighth row, then add up through shared memory in a fixed order.

#include "elementwise/pack.cuh"

namespace stof {

enum class Pooling { kMean, kCls, kMax };

/// Mirrored by src/backend/cuda/rows/pooling.cc.
struct PoolingParams {
  const Pack<8>* x;    // [rows, width]
  const i64* offsets;  // [texts + 1]: text i has the rows offsets[i] .. offsets[i + 1], at least one
  float* out;          // [texts, width]
  i32 blocks_per_text;
};

/// Config: Element, kWidth, kPooling.
template <class Config>
__device__ __forceinline__ void pooling(const PoolingParams& params) {
  constexpr int kPacks = Config::kWidth / 8, kWarps = 8;
  constexpr bool kMax = Config::kPooling == Pooling::kMax;
  __shared__ float partial[kWarps][32][8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 text = blockIdx.x / params.blocks_per_text;
  const int at = static_cast<int>(blockIdx.x % params.blocks_per_text) * 32 + lane;
  const i64 begin = params.offsets[text];
  const i64 end = Config::kPooling == Pooling::kCls ? begin + 1 : params.offsets[text + 1];
  float mine[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) mine[i] = kMax ? -ptx::infinity() : 0.0f;
  if (at < kPacks)
    for (i64 row = begin + warp; row < end; row += kWarps) {
      float values[8];
      unpack<typename Config::Element>(params.x[row * kPacks + at], values);
#pragma unroll
      for (int i = 0; i < 8; ++i) mine[i] = kMax ? fmaxf(mine[i], values[i]) : mine[i] + values[i];
    }
#pragma unroll
  for (int i = 0; i < 8; ++i) partial[warp][lane][i] = mine[i];
  __syncthreads();
  if (warp > 0 || at >= kPacks) return;
  for (int other = 1; other < kWarps; ++other)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float value = partial[other][lane][i];
      mine[i] = kMax ? fmaxf(mine[i], value) : mine[i] + value;
    }
  const float count = kMax ? 1.0f : static_cast<float>(end - begin);
  float* const out = params.out + text * Config::kWidth + at * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = mine[i] / count;
}

}  // namespace stof
