#pragma once
// Kernels that make one vector of a text's rows: configuration and source text. The kernel is in
// kernels/elementwise/pooling.cuh.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

enum class PoolingKind { kMean, kCls, kMax };

struct PoolingConfig {
  PoolingKind kind = PoolingKind::kMean;
  DType element = DType::kFloat16;  ///< or bfloat16
  std::int64_t width = 0;           ///< a multiple of 8

  static constexpr int kThreads = 256;

  /// "pool_mean_fp16_384"
  std::string name() const;
  /// Throws Unsupported naming width or element.
  void validate() const;
};

/// The translation unit; its entry is `pool`.
std::string emit_pooling(const PoolingConfig& config);

}  // namespace stof::codegen
