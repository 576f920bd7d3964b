#pragma once
// Single loads from shared memory by address, and barriers of part of a block.

#include "ptx/types.cuh"

namespace stof::ptx {

/// 8 bytes, little end first.
__device__ __forceinline__ u64 load_shared_u64(u32 address) {
  u64 value;
  asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ u32 load_shared_u16(u32 address) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

/// Waits for all of `threads` threads (whole warps) that come to barrier `id`, 1..15.
__device__ __forceinline__ void sync_some(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace stof::ptx
