#pragma once
// Block-wise masked attention for Hopper (sm_90a): one producer warp, one to three consumer
// warpgroups, persistent blocks on a queue. README.md beside this has roofline and schedule.

#include "attention/queue.cuh"
#include "attention/sm90_blockwise/consumer.cuh"
#include "attention/sm90_blockwise/producer.cuh"
#include "ptx/grid.cuh"

namespace stof {

template <class Config>
__device__ __forceinline__ void sm90_blockwise(const AttentionParams& params,
                                               const OperandMaps& maps) {
  using D = Derived<Config>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);

  if (threadIdx.x == 0) {
    const Barriers<D> barriers{ptx::shared_address(shared) + D::kBarrierOffset};
    for (int i = 0; i < D::kQueryStages; ++i) {
      ptx::init_barrier(barriers.query_full(i), 1);
      ptx::init_barrier(barriers.query_empty(i), D::kConsumerWarps);
    }
    for (int i = 0; i < D::kStages; ++i) {
      ptx::init_barrier(barriers.key_full(i), 1);
      ptx::init_barrier(barriers.key_empty(i), D::kConsumerWarps);
      ptx::init_barrier(barriers.value_full(i), 1);
      ptx::init_barrier(barriers.value_empty(i), D::kConsumerWarps);
    }
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(maps.q);
    ptx::prefetch_tensor_map(maps.k);
    ptx::prefetch_tensor_map(maps.v);
  }
  __syncthreads();
  ptx::allow_next_kernel();
  constexpr int kSpareWarp = 4 * D::kWarpgroups + 1;  // beside the producer
  if (threadIdx.x / 32 == kSpareWarp)
    warm_lists(params, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x) & 31);
  ptx::wait_for_previous_kernel();

  if (warpgroup == D::kWarpgroups) {
    ptx::shrink_registers<D::kProducerRegisters>();
    if (threadIdx.x < 128 * D::kWarpgroups + 32) {
      run_producer<D>(params, maps, shared);
      if ((threadIdx.x & 31) == 0) leave_queue(params.queue);
    }
  } else {
    ptx::grow_registers<D::kConsumerRegisters>();
    Consumer<D>(params, shared, warpgroup).run();
  }
}

}  // namespace stof
