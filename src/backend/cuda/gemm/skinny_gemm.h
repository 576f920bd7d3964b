#pragma once
// Matrix products of few rows by kernels/gemm/skinny: prepared once, launched many times.

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/call.h"
#include "backend/cuda/gemm/operands.h"
#include "backend/cuda/gemm/skinny_configs.h"

namespace stof::cuda {

/// Mirror of SkinnyGemmParams in kernels/gemm/skinny/config.cuh.
struct SkinnyGemmArguments {
  CUdeviceptr x, weight, y, residual, bias, gamma, beta, positions, frequencies, slots, cache,
      partials, arrivals;
  std::int64_t x_stride, y_stride, residual_stride, cache_stride;
  std::int32_t rotated, cached, rows, columns, tiles;
  float epsilon;
};
using SkinnyGemmCall = GemmCall<SkinnyGemmArguments>;

/// A product's kernel, compiled and loaded. Safe from several threads.
class SkinnyGemm {
 public:
  /// Throws Unsupported naming what the kernels do not take, or what loaded_kernel() throws.
  SkinnyGemm(const SkinnyProblem& problem, const codegen::SkinnyGemmConfig& config,
             const Device& device);

  /// gamma and beta: of the norm in front, [in]. `workspace`: workspace_bytes() of device memory, 0
  /// where that is none. Throws InvalidArgument naming an operand that is missing, superfluous or
  /// misaligned, and OutOfMemory.
  SkinnyGemmCall bind(const GemmOperands& operands, CUdeviceptr workspace = 0) const;

  /// For parts of sums; what it holds between launches plays no part.
  std::size_t workspace_bytes() const;
  const SkinnyProblem& problem() const { return problem_; }
  const codegen::SkinnyGemmConfig& config() const { return config_; }

 private:
  SkinnyProblem problem_;
  codegen::SkinnyGemmConfig config_;
  std::int64_t tiles_;
  const Kernel* kernel_;
  std::int64_t slots_;  ///< blocks that run at once
};

}  // namespace stof::cuda
