#pragma once
// Steps on a thread's values of a product, as warp-wide matrix instructions leave them (mma.sync and
// wgmma alike): of eight columns j values 4j to 4j+3, columns 2*(lane%4) and the next of rows lane/4
// (the first two) and lane/4 + 8.

#include "ptx/types.cuh"

namespace stof::values {

/// pair(j): what is added in the lane's two of the eight columns j.
template <int kCount, class Pair>
__device__ __forceinline__ void add_columns(float (&values)[kCount], const Pair& pair) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 two = pair(j);
    values[4 * j] += two.x, values[4 * j + 1] += two.y;
    values[4 * j + 2] += two.x, values[4 * j + 3] += two.y;
  }
}

template <int kCount, class Function>
__device__ __forceinline__ void activate(float (&values)[kCount], const Function& function) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = function(values[i]);
}

/// The first half are gates of the second.
template <int kCount, class Function>
__device__ __forceinline__ void gate(const float (&values)[2 * kCount], float (&gated)[kCount],
                                     const Function& function) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) gated[i] = function(values[i]) * values[kCount + i];
}

/// scale: of the lane's two rows.
template <int kCount>
__device__ __forceinline__ void scale_rows(float (&values)[kCount], const float (&scale)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] *= scale[i >> 1 & 1];
}

/// words: pairs of elements, in the order of the values.
template <class Element, int kCount>
__device__ __forceinline__ void add_words(float (&values)[kCount], const u32 (&words)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    values[2 * i] += Element::low(words[i]);
    values[2 * i + 1] += Element::high(words[i]);
  }
}

/// Adds the values of the first `left` columns, a multiple of 8, to their rows' sums.
template <int kCount>
__device__ __forceinline__ void count(const float (&values)[kCount], i32 left, float (&sum)[2],
                                      float (&squares)[2]) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    if (8 * j >= left) continue;
#pragma unroll
    for (int i = 4 * j; i < 4 * j + 4; ++i) {
      sum[i >> 1 & 1] += values[i];
      squares[i >> 1 & 1] += values[i] * values[i];
    }
  }
}

/// The sum over the four lanes that share two rows.
__device__ __forceinline__ float sum_of_four(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

}  // namespace stof::values
