#pragma once
// Loads of what is read once (PTX ISA, "ld.global.nc").

#include "ptx/types.cuh"

namespace stof::ptx {

/// 16 bytes that no kernel running now or before it has ended writes; past L1, whose lines are for
/// what is read again.
__device__ __forceinline__ uint4 load_streamed(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

}  // namespace stof::ptx
