#pragma once
// What cost models of products know of a GPU.

#include "backend/cuda/device.h"

namespace stof::cuda {

struct MachineRates {
  double multiply_adds = 0;  ///< a cycle and multiprocessor, by mma.sync with float32 sums
  double cache_bytes = 0;    ///< a cycle and multiprocessor, from the second-level cache
  double memory_gb_s = 0;
  double ghz = 0;  ///< under load
};

/// Of the GPU's compute capability, scaled to nothing.
MachineRates machine_rates(const DeviceFacts& facts);

/// Bytes of shared memory that a multiprocessor has for its blocks.
int shared_bytes_per_sm(const DeviceFacts& facts);

/// Of which every block takes so many, besides what it asks for.
inline constexpr int kReservedSharedBytes = 1024;

}  // namespace stof::cuda
