#pragma once
// What a product reads and writes.

#include "backend/cuda/driver.h"
#include "backend/cuda/gemm/problem.h"

namespace stof::cuda {

/// Device memory, 16-byte aligned; what the problem's steps do not ask for is 0. y may be residual
/// itself, and must overlap nothing else.
struct GemmOperands {
  CUdeviceptr x = 0, weight = 0, y = 0;
  CUdeviceptr bias = 0;             ///< [out]
  CUdeviceptr residual = 0;         ///< elements [rows, y_columns]
  CUdeviceptr row_scale = 0;        ///< float32 [rows]
  CUdeviceptr gamma = 0, beta = 0;  ///< [out]; beta with LayerNorm only
  CUdeviceptr positions = 0;        ///< int32 [rows], with GemmStep::kRope
  CUdeviceptr frequencies = 0;      ///< float32 [head_dim / 2], likewise
  CUdeviceptr slots = 0;            ///< int32 [rows], with GemmStep::kCacheStore: the cache's rows,
                                    ///< below 0 for none
  CUdeviceptr cache = 0;            ///< out: elements [.., out - cached], likewise
  CUdeviceptr statistics = 0;       ///< out: float32 [rows, statistics_columns(), 2]
  CUdeviceptr squares = 0;          ///< float32 [rows, num_squares], with GemmStep::kRmsScale
  CUdeviceptr row_squares = 0;      ///< out: float32 [rows, out / 32], with GemmStep::kRowSquares
};

/// Throws InvalidArgument naming an operand that is missing, superfluous or misaligned.
void check_operands(const GemmProblem& problem, const GemmOperands& operands);
/// The same where gamma and beta are not those of a step.
void check_operands(const GemmProblem& problem, const GemmOperands& operands, bool has_gamma,
                    bool has_beta);

}  // namespace stof::cuda
