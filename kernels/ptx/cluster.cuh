#pragma once
// Blocks of a cluster: their shared memory, and stores into it that complete a barrier there (PTX ISA,
// "mapa", "st.async", "barrier.cluster").

#include "ptx/types.cuh"

namespace stof::ptx {

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Where block `rank` of the cluster has what lies at `shared` here.
__device__ __forceinline__ u32 address_in_block(u32 shared, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

/// Says that this thread has come; every thread of the cluster must. What it wrote is visible to those
/// that have waited.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// Returns when every thread of the cluster has come.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Stores 16 bytes into some block of the cluster and completes `barrier` of the same block by them.
__device__ __forceinline__ void store_async(u32 address, float a, float b, float c, float d,
                                            u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}

/// ptx::wait() for a barrier that other blocks of the cluster complete: what they stored is seen.
__device__ __forceinline__ void wait_for_cluster(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait_again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra wait_done;\n"
      "bra wait_again;\n"
      "wait_done:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace stof::ptx
