#pragma once
// y = epilogue(x W^T) for Hopper (sm_90a): one producer thread, one or two warpgroups that multiply,
// blocks that walk over tiles. README.md beside this has roofline and schedules.

#include "gemm/sm90/consumer.cuh"
#include "gemm/sm90/producer.cuh"

namespace stof {

template <class Config>
__device__ __forceinline__ void sm90_gemm(const GemmParams& params, const GemmMaps& maps) {
  using D = GemmSizes<Config>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = ptx::shared_address(shared);
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);

  if (threadIdx.x == 0) {
    const GemmBarriers<D> barriers{base + D::kBarrierOffset};
    for (int i = 0; i < D::kStages; ++i) {
      ptx::init_barrier(barriers.full(i), 1);
      ptx::init_barrier(barriers.empty(i), D::kReaders);
    }
    for (int i = 0; i < D::kBiasSlots; ++i) {
      ptx::init_barrier(barriers.bias_full(i), 1);
      ptx::init_barrier(barriers.bias_empty(i), D::kReaders);
    }
    for (int i = 0; i < D::kResidualBarriers; ++i) ptx::init_barrier(barriers.residual(0, 0) + 8 * i, 1);
    for (int i = 0; i < D::kReceiveBarriers; ++i) ptx::init_barrier(barriers.receive(i), 1);
    for (int i = 0; i < D::kHearBarriers; ++i) ptx::init_barrier(barriers.hear(0, 0) + 8 * i, 1);
    ptx::fence_barrier_init();
    for (int i = 0; i < D::kReceiveBarriers; ++i)
      ptx::arrive_expect_bytes(barriers.receive(i), (D::kPartners - 1) * D::kReceiveBytes);
  } else if (threadIdx.x == 32) {
    ptx::prefetch_tensor_map(maps.x);
    ptx::prefetch_tensor_map(maps.w);
    ptx::prefetch_tensor_map(maps.y);
  }
  __syncthreads();
  if constexpr (D::kClusterBlocks > 1) ptx::cluster_arrive();
  ptx::allow_next_kernel();

  if (group == D::kGroups) {
    if constexpr (D::kLarge) ptx::shrink_registers<D::kProducerRegisters>();
    if (threadIdx.x < 128 * D::kGroups + 32 && ptx::elect_one())
      GemmProducer<D>(params, maps, base).run();
  } else {
    if constexpr (D::kLarge) ptx::grow_registers<D::kGroupRegisters>();
    GemmConsumer<D>(params, maps, shared, group).run();
  }
}

}  // namespace stof
