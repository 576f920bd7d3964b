#pragma once
// Kernels over the rows of a matrix: configuration and source text. The kernels are in kernels/norm
// and kernels/elementwise.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

enum class RowOperator {
  kEmbeddingNorm,  ///< word + position + segment embedding, LayerNorm
  kResidualNorm,   ///< x = LayerNorm(x + y + bias)
  kGeluErf,        ///< in place; its width plays no part
  kPoolMean,       ///< one vector a text
  kPoolCls,
  kPoolMax,
};

struct RowConfig {
  RowOperator op = RowOperator::kResidualNorm;
  DType element = DType::kFloat16;  ///< or bfloat16
  int width = 0;                    ///< a multiple of 8, up to kMaxWidth

  /// Four packs of eight elements a thread of a block of 1024.
  static constexpr int kMaxWidth = 1024 * 4 * 8;

  int warps() const;  ///< of a row
  int rows_per_block() const;
  int threads() const;
  /// "residual_norm_fp16_384"
  std::string name() const;
  /// Throws Unsupported naming width or element.
  void validate() const;
};

/// The translation unit; its entry is `rows`.
std::string emit_rows(const RowConfig& config);

}  // namespace stof::codegen
