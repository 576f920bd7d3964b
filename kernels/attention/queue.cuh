#pragma once
// The queue of work records that persistent blocks pop.

#include "ptx/types.cuh"

namespace stof {

/// The last block to finish puts the queue back to zero, so that a captured launch replays. One
/// thread of each block calls it, after the block's last ticket.
__device__ __forceinline__ void leave_queue(u32* queue) {
  __threadfence();
  if (atomicAdd(queue + 1, 1u) == gridDim.x - 1) {
    queue[0] = 0;
    queue[1] = 0;
  }
}

}  // namespace stof
