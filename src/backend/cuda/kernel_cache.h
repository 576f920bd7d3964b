#pragma once
// Kernels of this process, compiled and loaded once a GPU.

#include <string>

#include "backend/cuda/device.h"

namespace stof::cuda {

/// A kernel's text and how it is launched.
struct KernelSource {
  std::string name;  ///< configuration; names the text within `entry`
  std::string text;
  const char* entry;
  int shared_bytes = 0;      ///< dynamic
  bool early_start = false;  ///< see Kernel
};

/// From this process, the cubin cache or the compiler. The reference stays valid.
const Kernel& loaded_kernel(const KernelSource& source, const Device& device);

}  // namespace stof::cuda
