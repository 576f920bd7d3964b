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

/// The same of a warp, read anew at every call: for code with few registers.
__device__ __forceinline__ i32 lane_index() {
  i32 lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

}  // namespace stof::ptx
