#pragma once
// The bulk copy engine (TMA): tensor tiles and plain runs of bytes into shared memory.

#include "ptx/barrier.cuh"

namespace stof::ptx {

/// CUtensorMap, passed as a __grid_constant__ kernel parameter.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads one box of a 5-D tensor; completes `barrier` by the box's bytes. Elements outside the
/// tensor arrive as zero and count as bytes.
__device__ __forceinline__ void load_tile(u32 shared, const TensorMap* map, u32 barrier, i32 c0,
                                          i32 c1, i32 c2, i32 c3, i32 c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Copies bytes (a multiple of 16, both sides 16-byte aligned).
__device__ __forceinline__ void load_bytes(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace stof::ptx
