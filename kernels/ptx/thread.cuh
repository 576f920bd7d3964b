#pragma once
// The thread's number, read anew.

#include "ptx/types.cuh"

namespace stof::ptx {

/// threadIdx.x, read where it is used: what is derived from it occupies no registers in between.
__device__ __forceinline__ u32 thread_index() {
  u32 thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

}  // namespace stof::ptx
