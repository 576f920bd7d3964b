#pragma once
// Matrix products by kernels/gemm/sm80: prepared once, launched many times.

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/call.h"
#include "backend/cuda/gemm/operands.h"
#include "backend/cuda/gemm/sm80_configs.h"

namespace stof::cuda {

/// Mirror of Sm80GemmParams in kernels/gemm/sm80/config.cuh.
struct Sm80GemmArguments {
  CUdeviceptr x, weight, y, residual, bias, row_scale, statistics, partials, arrivals;
  std::int64_t x_stride, y_stride, residual_stride;
  std::int32_t rows, in, columns, tiles_m, tiles_n, band;
};
using Sm80GemmCall = GemmCall<Sm80GemmArguments>;

/// A product's kernel, compiled and loaded. Safe from several threads.
class Sm80Gemm {
 public:
  /// Throws Unsupported naming what the kernels do not take, or what loaded_kernel() throws.
  Sm80Gemm(const GemmProblem& problem, const codegen::Sm80GemmConfig& config, const Device& device);

  /// `workspace`: workspace_bytes() of device memory, 0 where that is none. Throws InvalidArgument
  /// naming an operand that is missing, superfluous or misaligned, and OutOfMemory.
  Sm80GemmCall bind(const GemmOperands& operands, CUdeviceptr workspace = 0) const;

  /// For parts of sums; what it holds between launches plays no part.
  std::size_t workspace_bytes() const;
  /// Pairs of sums kept for a row with GemmStep::kRowStatistics: one a warp's columns.
  std::int64_t statistics_columns() const;
  const GemmProblem& problem() const { return problem_; }
  const codegen::Sm80GemmConfig& config() const { return config_; }

 private:
  GemmProblem problem_;
  codegen::Sm80GemmConfig config_;
  std::int64_t tiles_m_, tiles_n_;
  const Kernel* kernel_;
};

}  // namespace stof::cuda
