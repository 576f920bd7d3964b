#pragma once
// Blocks that share a result: each writes its part to memory, the one that comes last reads them all.
// Who waits for nobody cannot hang, whatever order blocks run in.

#include "ptx/types.cuh"

namespace stof {

/// Whether this block is the last of `blocks`; then what the others wrote before is visible, past L1
/// (__ldcg). `counter` is zero before and after; `flag`: shared memory of the block.
__device__ __forceinline__ bool is_last_to_arrive(u32* counter, u32 blocks, u32* flag) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *flag = atomicAdd(counter, 1u);
    __threadfence();
  }
  __syncthreads();
  if (*flag != blocks - 1) return false;
  if (threadIdx.x == 0) *counter = 0;  // for the next launch
  return true;
}

}  // namespace stof
