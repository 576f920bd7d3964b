#pragma once
// A matrix product with what follows it.

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/gemm.h"

namespace stof::cuda {

/// y = steps(x[rows, in] W[out, in]^T): row-major elements, float32 accumulation; every result is
/// rounded once, when it is stored. With a gate y has out / 2 columns: those of the first half of
/// W's rows are gates of those of the second half.
struct GemmProblem {
  DType element = DType::kBFloat16;  ///< or float16
  std::int64_t rows = 0, in = 0, out = 0;
  std::vector<codegen::GemmStep> steps;
  DType bias = DType::kFloat32;   ///< or the element type
  DType gamma = DType::kFloat32;  ///< of gamma and beta; or the element type
  double epsilon = 0;             ///< of a norm, or of kRmsScale
  /// With GemmStep::kRope and kHeadStore: columns of a head; with kRope, how many of the first
  /// columns of y are turned.
  std::int64_t head_dim = 0, rotated = 0;
  /// With GemmStep::kCacheStore: the first column of y that goes to the cache, and elements from
  /// row to row of that.
  std::int64_t cached = 0, cache_stride = 0;
  std::int64_t num_squares = 0;  ///< with GemmStep::kRmsScale: sums of 32 squares that a row has
  /// Elements from row to row; 0: as many as the matrix has columns.
  std::int64_t x_stride = 0, y_stride = 0, residual_stride = 0;

  bool has(codegen::GemmStep step) const;
  bool has_norm() const;
  std::int64_t y_columns() const;
  /// Strides as they are in memory.
  std::int64_t x_pitch() const { return x_stride > 0 ? x_stride : in; }
  std::int64_t y_pitch() const { return y_stride > 0 ? y_stride : y_columns(); }
  std::int64_t residual_pitch() const {
    return residual_stride > 0 ? residual_stride : y_columns();
  }
  int rope_dim() const;   ///< head_dim with GemmStep::kRope, else 0
  int store_dim() const;  ///< head_dim with GemmStep::kHeadStore, else 0
  /// "bfloat16 [128, 768] x [3072, 768]^T, bias, gelu_erf"
  std::string describe() const;
  /// Empty, or why the kernels do not take it: "in: expected a multiple of 8, got 100".
  std::string unsupported() const;
};

}  // namespace stof::cuda
