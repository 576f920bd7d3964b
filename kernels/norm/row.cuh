#pragma once
// A matrix row in the registers of one or more warps: eight elements a thread and step, statistics in
// float32. One warp takes a row of up to 1024 elements, so that no block-wide barrier is needed; wider
// rows take a block each.

#include "ptx/math.cuh"
#include "ptx/types.cuh"

namespace stof {

/// Eight 16-bit elements, one memory transaction of a thread.
struct alignas(16) Pack {
  u32 words[4];
};

template <class Element>
__device__ __forceinline__ void unpack(const Pack& pack, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = Element::low(pack.words[i]);
    values[2 * i + 1] = Element::high(pack.words[i]);
  }
}

template <class Element>
__device__ __forceinline__ Pack pack(const float (&values)[8]) {
  Pack out;
#pragma unroll
  for (int i = 0; i < 4; ++i) out.words[i] = Element::pack(values[2 * i], values[2 * i + 1]);
  return out;
}

/// Config: Element, kWidth (a multiple of 8), kWarps of a row, kRows of a block (1 where kWarps > 1).
template <class Config>
struct Row {
  using Element = typename Config::Element;
  static constexpr int kPacks = Config::kWidth / 8;
  static constexpr int kThreads = 32 * Config::kWarps;  // of a row
  static constexpr int kSteps = (kPacks + kThreads - 1) / kThreads;

  float values[kSteps][8];

  static __device__ __forceinline__ int thread() { return threadIdx.x % kThreads; }
  static __device__ __forceinline__ i64 index() {
    return static_cast<i64>(blockIdx.x) * Config::kRows + threadIdx.x / kThreads;
  }

  /// visit(step, pack index) for each pack of this thread.
  template <class Visit>
  static __device__ __forceinline__ void for_each_pack(const Visit& visit) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step * kThreads + thread();
      if (kPacks % kThreads == 0 || at < kPacks) visit(step, at);
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 8; ++i) values[step][i] = 0;
  }

  /// Adds a row of elements.
  __device__ __forceinline__ void add(const Pack* row) {
    for_each_pack([&](int step, int at) {
      float more[8];
      unpack<Element>(row[at], more);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[step][i] += more[i];
    });
  }

  /// Adds a row of float32.
  __device__ __forceinline__ void add(const float4* row) {
    for_each_pack([&](int step, int at) {
      const float4 a = row[2 * at], b = row[2 * at + 1];
      const float more[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) values[step][i] += more[i];
    });
  }

  /// Sum over the row, the same in every thread of it.
  static __device__ __forceinline__ float sum_over_row(float mine) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
      mine += __shfl_xor_sync(0xffffffffu, mine, offset);
    if (Config::kWarps == 1) return mine;
    __shared__ float partial[Config::kWarps];
    __syncthreads();  // the values of an earlier sum have been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < Config::kWarps; ++warp) sum += partial[warp];
    return sum;
  }

  /// Stores (x - mean) / sqrt(variance + epsilon) * gamma + beta; the variance is that of the centred
  /// values, so that a large mean does not cancel.
  __device__ __forceinline__ void normalise_and_store(const float4* gamma, const float4* beta,
                                                      float epsilon, Pack* out) const {
    float sum = 0;
    for_each_pack([&](int step, int) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += values[step][i];
    });
    const float mean = sum_over_row(sum) * (1.0f / Config::kWidth);
    float squares = 0;
    for_each_pack([&](int step, int) {
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += (values[step][i] - mean) * (values[step][i] - mean);
    });
    const float variance = sum_over_row(squares) * (1.0f / Config::kWidth);
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    for_each_pack([&](int step, int at) {
      const float4 g0 = gamma[2 * at], g1 = gamma[2 * at + 1];
      const float4 b0 = beta[2 * at], b1 = beta[2 * at + 1];
      const float scale[8] = {g0.x, g0.y, g0.z, g0.w, g1.x, g1.y, g1.z, g1.w};
      const float shift[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
      float normal[8];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        normal[i] = (values[step][i] - mean) * inverse * scale[i] + shift[i];
      out[at] = pack<Element>(normal);
    });
  }
};

}  // namespace stof
