#pragma once
// Several elements in one memory transaction of a thread.

#include "ptx/math.cuh"
#include "ptx/types.cuh"

namespace stof {

/// kVector 16-bit elements, 8 or 4.
template <int kVector>
struct alignas(2 * kVector) Pack {
  u32 words[kVector / 2];
};

template <class Element, int kVector>
__device__ __forceinline__ void unpack(const Pack<kVector>& pack, float (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    values[2 * i] = Element::low(pack.words[i]);
    values[2 * i + 1] = Element::high(pack.words[i]);
  }
}

template <class Element, int kVector>
__device__ __forceinline__ Pack<kVector> pack(const float (&values)[kVector]) {
  Pack<kVector> out;
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i)
    out.words[i] = Element::pack(values[2 * i], values[2 * i + 1]);
  return out;
}

}  // namespace stof
