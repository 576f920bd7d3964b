#pragma once
// Launches of row programs (kernels/norm/row_program.cuh).

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernel_cache.h"
#include "codegen/row_program.h"

namespace stof::cuda {

/// A matrix, vector, table or list of ids in device memory, 16-byte aligned.
struct RowOperand {
  CUdeviceptr data = 0;
  /// From row to row, in elements, a multiple of 8; 0: one for all rows. Of float32 sums, which lie
  /// one row behind the other, in twos: two a sum.
  std::int64_t stride = 0;
};

using RowOperands = std::array<RowOperand, codegen::RowProgramConfig::kMaxOperands>;

/// A program, loaded. May start while the kernel before it in the stream still runs.
class RowProgram {
 public:
  /// Compiles what is not cached. Throws Unsupported naming what has no kernel.
  RowProgram(const codegen::RowProgramConfig& config, const Device& device);

  /// What the constructor compiles.
  static KernelSource source(const codegen::RowProgramConfig& config);

  /// Operands by the program's numbers. Asynchronous.
  void run(const RowOperands& operands, std::int64_t rows, float epsilon, CUstream stream) const;

 private:
  codegen::RowProgramConfig config_;
  const Kernel* kernel_;
};

/// What encoders of that width run when they are not tuned, on few rows and on many: the sum of
/// embeddings and each half of a layer, normalised.
std::vector<codegen::RowProgramConfig> encoder_row_programs(DType element, std::int64_t width);

}  // namespace stof::cuda
