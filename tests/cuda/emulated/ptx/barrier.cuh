#pragma once
// What the emulated kernels use of kernels/ptx/barrier.cuh.

#include "machine.h"
#include "ptx/types.cuh"

namespace stof::ptx {

inline u32 shared_address(const void* pointer) { return emulated::machine.address_of(pointer); }

}  // namespace stof::ptx
