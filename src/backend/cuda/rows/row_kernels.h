#pragma once
// Launches of the row kernels (kernels/norm, kernels/elementwise). All pointers are device memory,
// 16-byte aligned; all calls are asynchronous.

#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernel_cache.h"
#include "codegen/rows.h"

namespace stof::cuda {

/// What a normalisation adds and scales with, float32 [width].
struct NormParameters {
  CUdeviceptr gamma = 0, beta = 0;
  float epsilon = 0;
};

struct EmbeddingOperands {
  CUdeviceptr words, positions, segment;  ///< tables of elements, [.., width]; segment [width]
  NormParameters norm;
};

/// The row kernels of one element type and row width, loaded.
class RowKernels {
 public:
  /// Compiles what is not cached. Throws Unsupported naming width or element type.
  RowKernels(const Device& device, DType element, std::int64_t width);

  /// What the constructor compiles.
  static std::vector<KernelSource> sources(DType element, std::int64_t width);

  /// out[i] = LayerNorm(words[ids[i]] + positions[places[i]] + segment); ids, places: int32 [rows].
  void embedding_norm(const EmbeddingOperands& tables, CUdeviceptr ids, CUdeviceptr places,
                      CUdeviceptr out, std::int64_t rows, CUstream stream) const;
  /// x = LayerNorm(x + y + bias); x, y: elements [rows, width], bias: float32 [width].
  void residual_norm(CUdeviceptr x, CUdeviceptr y, CUdeviceptr bias, const NormParameters& norm,
                     std::int64_t rows, CUstream stream) const;
  /// x = GELU(x), the erf form; `count` elements, a multiple of 8.
  void gelu_erf(CUdeviceptr x, std::int64_t count, CUstream stream) const;
  /// out: float32 [texts, width]; x: elements [rows, width]; offsets: int64 [texts + 1], each text
  /// with at least one row.
  void pool(codegen::RowOperator pooling, CUdeviceptr x, CUdeviceptr offsets, std::int64_t texts,
            CUdeviceptr out, CUstream stream) const;

 private:
  const Kernel& kernel(codegen::RowOperator op) const;

  Device device_;
  DType element_;
  std::int64_t width_;
  std::vector<const Kernel*> kernels_;  ///< by RowOperator
};

}  // namespace stof::cuda
