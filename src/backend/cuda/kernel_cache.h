#pragma once
// Kernels of this process: each is found or compiled, and loaded, once a device.

#include <string>
#include <vector>

#include "backend/cuda/device.h"

namespace stof::cuda {

/// A translation unit and how its one entry is launched.
struct KernelSource {
  std::string name;  ///< with `entry`, names all that the text depends on
  std::string text;
  const char* entry;
  int shared_bytes = 0;
  bool early_start = false;
  bool may_spill = false;   ///< see jit::CubinRequest
  int shared_percent = -1;  ///< see Kernel
};

/// Loaded before, or from the cache, or compiled. The kernel lives as long as the process. Safe
/// from several threads. Throws what jit::cubin_for() throws.
const Kernel& loaded_kernel(const KernelSource& source, const Device& device);

/// The same for several; what must be compiled is compiled by all cores at once.
std::vector<const Kernel*> loaded_kernels(const std::vector<KernelSource>& sources,
                                          const Device& device);

}  // namespace stof::cuda
