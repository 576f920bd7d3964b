#pragma once
// Matrix products on Hopper by kernels/gemm/sm90: prepared once, launched many times.

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/configs.h"
#include "backend/cuda/gemm/operands.h"

namespace stof::cuda {

/// A product with its operands bound. Immutable; launch() may be called from several threads.
class Sm90GemmCall {
 public:
  /// Asynchronous; neither allocates nor compiles nor synchronises. The kernel may start before the
  /// one before it in the stream has ended, and then reads weight and bias at once, all else when
  /// that has ended. `after_all`: it does not; needed where the kernel before writes weight or
  /// bias.
  void launch(CUstream stream, bool after_all = false) const;

 private:
  friend class Sm90Gemm;
  // Mirror of GemmParams in kernels/gemm/sm90/config.cuh.
  struct Params {
    CUdeviceptr bias, gamma, beta, row_scale, statistics, positions, frequencies, squares,
        row_squares;
    std::int32_t rows, columns, k_blocks, tiles_m, tiles_n, band, rotated, num_squares;
    float epsilon;
  };
  const Kernel* kernel_ = nullptr;
  unsigned blocks_ = 0, threads_ = 0;
  Params params_{};
  CUtensorMap x_{}, weight_{}, y_{}, residual_{};
};

/// A product's kernel, compiled and loaded. Safe from several threads.
class Sm90Gemm {
 public:
  /// Throws Unsupported naming what the kernels do not take, or what loaded_kernel() throws.
  Sm90Gemm(const GemmProblem& problem, const codegen::GemmConfig& config, const Device& device);
  /// With the default configuration.
  Sm90Gemm(const GemmProblem& problem, const Device& device);

  /// Throws InvalidArgument naming an operand that is missing, superfluous or misaligned.
  Sm90GemmCall bind(const GemmOperands& operands) const;
  /// bind() and launch().
  void run(const GemmOperands& operands, CUstream stream, bool after_all = false) const {
    bind(operands).launch(stream, after_all);
  }

  /// Pairs of sums kept for a row with GemmStep::kRowStatistics: one a tile's columns.
  std::int64_t statistics_columns() const;
  const GemmProblem& problem() const { return problem_; }
  const codegen::GemmConfig& config() const { return config_; }

 private:
  GemmProblem problem_;
  codegen::GemmConfig config_;
  const Kernel* kernel_;
  std::int64_t slots_;  ///< blocks that run at once
};

}  // namespace stof::cuda
