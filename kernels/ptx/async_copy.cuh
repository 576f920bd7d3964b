#pragma once
// Asynchronous copies by threads, from global to shared memory (PTX ISA, "cp.async"). Needs no
// descriptors: any address and any stride.

#include "ptx/types.cuh"

namespace stof::ptx {

/// 16 bytes, both sides 16-byte aligned; past L1. Of the 16 only `bytes` are read, the rest are
/// zero.
__device__ __forceinline__ void copy_16(u32 shared, const void* global, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_16(u32 shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global)
               : "memory");
}

/// 4 bytes, likewise.
__device__ __forceinline__ void copy_4(u32 shared, const void* global, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
}

/// Ends a group of this thread's copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Returns when all but the newest kPending groups of this thread are complete.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void store_shared(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

}  // namespace stof::ptx
