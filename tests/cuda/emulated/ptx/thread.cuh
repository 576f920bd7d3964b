#pragma once
// kernels/ptx/thread.cuh.

#include "machine.h"
#include "ptx/types.cuh"

namespace stof::ptx {

inline u32 thread_index() { return emulated::machine.thread(); }

}  // namespace stof::ptx
