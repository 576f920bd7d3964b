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

/// The same of a matrix: `column` and `row` of the box's first element.
__device__ __forceinline__ void load_matrix_box(u32 shared, const TensorMap* map, u32 barrier,
                                                i32 column, i32 row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

/// Stores one box of a matrix, of which what lies outside the matrix is left out. What threads wrote
/// to the box is seen after fence_copies() in each of them; the box may be written again after
/// wait_stores_read().
__device__ __forceinline__ void store_matrix_box(u32 shared, const TensorMap* map, i32 column,
                                                 i32 row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   map),
               "r"(shared), "r"(column), "r"(row)
               : "memory");
}

/// The same of one of several matrices of equal size.
__device__ __forceinline__ void store_matrix_box(u32 shared, const TensorMap* map, i32 column, i32 row,
                                                 i32 matrix) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(shared), "r"(column), "r"(row), "r"(matrix)
      : "memory");
}

/// What this thread wrote to shared memory comes before copies issued after it.
__device__ __forceinline__ void fence_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Ends a group of this thread's stores.
__device__ __forceinline__ void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Returns when all but the newest kPending groups of this thread have read their shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
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
