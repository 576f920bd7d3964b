#pragma once
// Blocks of queries, or of keys, pooled to one vector each: src/mask/dynamic/block_grid.cc's
// pool_rows(), in the same order and precision.

#include "prune/params.cuh"
#include "ptx/math.cuh"

namespace stof::prune {

/// One column of a block. Sums run in double, one row after the other.
template <bool kMax>
class Pooled {
 public:
  __device__ __forceinline__ void add(float x, bool is_first) {
    if constexpr (kMax) {
      // A NaN that came before stays: nothing is above it.
      if (is_first || x > most_ || x != x) most_ = x;
    } else {
      sum_ += static_cast<double>(x);
    }
  }
  __device__ __forceinline__ float value(i32 count) const {
    if constexpr (kMax) return most_;
    return static_cast<float>(sum_ / static_cast<double>(count > 0 ? count : 1));
  }

 private:
  double sum_ = 0;
  float most_ = 0;
};

/// Config has Element, kHeadDim, kMaxPooling. Threads of a block: 8 columns each, of as many blocks
/// of tokens as they are enough for; first queries, then keys.
template <class Config>
__device__ __forceinline__ void pool_blocks(const BlockParams& params) {
  constexpr int kUnits = Config::kHeadDim / 8;
  constexpr int kTeams = kPoolThreads / kUnits;
  const i32 block_index = static_cast<i32>(blockIdx.x);
  const bool keys = block_index >= params.pool_blocks_q;
  const i32 thread = static_cast<i32>(threadIdx.x);
  const i32 unit = thread % kUnits;
  const i32 blocks = keys ? params.kv_blocks : params.q_blocks;
  const i32 heads = keys ? params.heads_kv : params.heads_q;
  const i64 job = static_cast<i64>(block_index - (keys ? params.pool_blocks_q : 0)) * kTeams + thread / kUnits;
  const i64 head_of_all = job / blocks;
  const i32 block = static_cast<i32>(job - head_of_all * blocks);
  const i64 batch = head_of_all / heads;
  const i64 head = head_of_all - batch * heads;
  if (thread / kUnits >= kTeams || batch >= params.batch) return;
  const i64* const strides = keys ? params.k_strides : params.q_strides;
  const i32 rows = keys ? params.seq_kv : params.seq_q;
  const i32 begin = block * params.block;
  const i32 end = begin + params.block < rows ? begin + params.block : rows;
  const unsigned char* const used = keys ? params.used_k : params.used_q;
  const auto* row = static_cast<const unsigned short*>(keys ? params.k : params.q) +
                    batch * strides[0] + head * strides[1] + begin * strides[2] + 8 * unit;
  Pooled<Config::kMaxPooling> columns[8];
  i32 count = 0;
  constexpr int kAtOnce = 8;  // loads under way
  for (i32 first = begin; first < end; first += kAtOnce) {
    uint4 words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i < end)
        words[i] = *reinterpret_cast<const uint4*>(row + i * strides[2]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= end || used[first + i] == 0) continue;
      const u32 pairs[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        columns[2 * j].add(Config::Element::low(pairs[j]), count == 0);
        columns[2 * j + 1].add(Config::Element::high(pairs[j]), count == 0);
      }
      ++count;
    }
    row += kAtOnce * strides[2];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const i32 column = 8 * unit + i;
    const float value = columns[i].value(count);
    if (keys)
      params.pooled_k[(head_of_all * Config::kHeadDim + column) * blocks + block] = value;
    else
      params.pooled_q[job * Config::kHeadDim + column] = value;
  }
}

}  // namespace stof::prune
