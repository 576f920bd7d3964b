#include "backend/cuda/gemm/operands.h"

#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::GemmStep;

void check_operand(const char* name, CUdeviceptr address, bool wanted) {
  STOF_CHECK((address != 0) == wanted, kInvalidArgument, "{}: expected {}, got {}", name,
             wanted ? "device memory" : "none, since no step takes it",
             wanted ? "none" : "an address");
  STOF_CHECK(address % 16 == 0, kInvalidArgument, "{}: expected an address divisible by 16 bytes",
             name);
}

}  // namespace

void check_operands(const GemmProblem& p, const GemmOperands& operands) {
  check_operands(p, operands, p.has_norm(), p.has(GemmStep::kLayerNorm));
}

void check_operands(const GemmProblem& p, const GemmOperands& operands, bool has_gamma,
                    bool has_beta) {
  check_operand("x", operands.x, true);
  check_operand("weight", operands.weight, true);
  check_operand("y", operands.y, true);
  check_operand("bias", operands.bias, p.has(GemmStep::kBias));
  check_operand("residual", operands.residual, p.has(GemmStep::kResidual));
  check_operand("gamma", operands.gamma, has_gamma);
  check_operand("beta", operands.beta, has_beta);
  check_operand("row_scale", operands.row_scale, p.has(GemmStep::kRowScale));
  check_operand("positions", operands.positions, p.has(GemmStep::kRope));
  check_operand("frequencies", operands.frequencies, p.has(GemmStep::kRope));
  check_operand("slots", operands.slots, p.has(GemmStep::kCacheStore));
  check_operand("cache", operands.cache, p.has(GemmStep::kCacheStore));
  check_operand("squares", operands.squares, p.has(GemmStep::kRmsScale));
  check_operand("row_squares", operands.row_squares, p.has(GemmStep::kRowSquares));
  check_operand("statistics", operands.statistics, p.has(GemmStep::kRowStatistics));
}

}  // namespace stof::cuda
