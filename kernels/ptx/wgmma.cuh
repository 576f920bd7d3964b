#pragma once
// Warpgroup matrix instructions: descriptors, fences and groups. The instruction wrappers
// themselves (wgmma_ss, wgmma_rs for one shape) are emitted by src/codegen/wgmma.cc.

#include "ptx/types.cuh"

namespace stof::ptx {

/// Descriptor of a shared-memory operand stored as 128-byte rows with the 128-byte swizzle, as TMA
/// writes it. The low word is start address / 16 and leading offset / 16 (<< 16); the high word is
/// stride offset / 16 and the swizzle mode. Every tile base is 1024-byte aligned.
struct Descriptor {
  u32 low;
  u32 high;
};

/// leading_bytes: between 64-column chunks (read for MN-major operands only).
/// Eight rows of 128 bytes make one swizzle atom, hence the fixed stride of 1024 bytes.
__device__ __forceinline__ Descriptor make_descriptor(u32 shared, u32 leading_bytes) {
  return {((shared & 0x3ffffu) >> 4) | ((leading_bytes >> 4) << 16), (1024u >> 4) | (1u << 30)};
}

__device__ __forceinline__ u64 encode(Descriptor descriptor) {
  return (static_cast<u64>(descriptor.high) << 32) | descriptor.low;
}

/// The same operand `bytes` further (a multiple of 16).
__device__ __forceinline__ Descriptor advance(Descriptor descriptor, u32 bytes) {
  return {descriptor.low + (bytes >> 4), descriptor.high};
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Ties registers to this point of the program, so that no use moves across a wait.
template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace stof::ptx
