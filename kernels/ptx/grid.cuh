#pragma once
// Programmatic dependent launch: the next kernel of the stream may set itself up while this one
// runs (PTX ISA, "griddepcontrol"). Before sm_90 launches do not overlap and nothing is to be said.

#include "ptx/types.cuh"

namespace stof::ptx {

/// Whether launches may overlap at all.
#if __CUDA_ARCH__ >= 900
constexpr bool kStartsEarly = true;
#else
constexpr bool kStartsEarly = false;
#endif

/// Blocks of the next kernel may start once every block of this one has said so. Short kernels, and
/// those of few rows, say so when the kernel before them has ended: otherwise blocks that are two
/// kernels ahead hold multiprocessors that the next one's blocks are waiting for
/// (kernels/gemm/skinny/README.md).
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when the previous kernel has finished and its writes are visible. No global memory that
/// another kernel may touch is read or written before this.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Loads a word for the caches alone.
__device__ __forceinline__ void touch_global(const void* address) {
  u32 word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
}

}  // namespace stof::ptx
