#pragma once
// Matrix products of few rows by kernels/gemm/skinny: prepared once, launched many times.

#include <cstdint>
#include <memory>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/operands.h"
#include "backend/cuda/gemm/skinny_configs.h"

namespace stof::cuda {

/// A product with its operands bound. Launches of one call, and of all that share a workspace,
/// must be on one stream, unless the configuration splits no sums.
class SkinnyGemmCall {
 public:
  /// Asynchronous; neither allocates nor compiles nor synchronises. Where launches overlap (from
  /// 9.0 on) the kernel may start before the one before it in the stream has ended, and then reads
  /// the weight at once, all else when that has ended. `after_all`: it does not; needed where the
  /// kernel before writes the weight.
  void launch(CUstream stream, bool after_all = false) const;

 private:
  friend class SkinnyGemm;
  // Mirror of SkinnyGemmParams in kernels/gemm/skinny/config.cuh.
  struct Params {
    CUdeviceptr x, weight, y, residual, bias, gamma, beta, partials, arrivals;
    std::int64_t x_stride, y_stride, residual_stride;
    std::int32_t rows, columns, tiles;
    float epsilon;
  };
  const Kernel* kernel_ = nullptr;
  unsigned blocks_ = 0, threads_ = 0;
  Params params_{};
  std::shared_ptr<const DeviceBuffer> arrivals_;  ///< null without splits
};

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
