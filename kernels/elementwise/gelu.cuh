#pragma once
// The exact GELU, x/2 (1 + erf(x / sqrt 2)), in place. cuBLASLt's epilogue computes the tanh form only.

#include "norm/row.cuh"

namespace stof {

/// Mirrored by src/backend/cuda/rows/row_kernels.cc.
struct GeluParams {
  Pack* x;
  i64 packs;
};

template <class Element>
__device__ __forceinline__ void gelu_erf(const GeluParams& params) {
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 at = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; at < params.packs;
       at += stride) {
    float values[8];
    unpack<Element>(params.x[at], values);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i] = 0.5f * values[i] * (1.0f + erff(values[i] * 0.70710678118654752f));
    params.x[at] = pack<Element>(values);
  }
}

}  // namespace stof
