#pragma once
// Launches of the pooling kernels (kernels/elementwise/pooling.cuh).

#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernel_cache.h"
#include "codegen/pooling.h"

namespace stof::cuda {

/// Pooling of one element type and row width, loaded.
class PoolingKernels {
 public:
  /// Compiles what is not cached. Throws Unsupported naming width or element type.
  PoolingKernels(const Device& device, DType element, std::int64_t width);

  /// What the constructor compiles, in the order of the kinds.
  static std::vector<KernelSource> sources(DType element, std::int64_t width);

  /// out: float32 [texts, width]; x: elements [rows, width]; offsets: int64 [texts + 1], each text
  /// with at least one row; all in device memory, 16-byte aligned. Asynchronous.
  void run(codegen::PoolingKind kind, CUdeviceptr x, CUdeviceptr offsets, std::int64_t texts,
           CUdeviceptr out, CUstream stream) const;

 private:
  std::int64_t width_;
  std::vector<const Kernel*> kernels_;  ///< by PoolingKind
};

}  // namespace stof::cuda
