#include "backend/cuda/rows/row_program.h"

#include <algorithm>

#include "core/bits.h"

namespace stof::cuda {
namespace {

/// Mirror of kernels/norm/row_program.cuh.
struct Params {
  RowOperands operands;
  std::int64_t rows;
  float epsilon;
};

}  // namespace

KernelSource RowProgram::source(const codegen::RowProgramConfig& config) {
  return {config.name(), emit_row_program(config), "row_program"};
}

RowProgram::RowProgram(const codegen::RowProgramConfig& config, const Device& device)
    : config_(config) {
  KernelSource kernel = source(config);
  kernel.early_start = device.facts().major >= 9;  // launches do not overlap before
  kernel_ = &loaded_kernel(kernel, device);
}

void RowProgram::run(const RowOperands& operands, std::int64_t rows, float epsilon,
                     CUstream stream) const {
  if (rows == 0) return;
  Params params{operands, rows, epsilon};
  void* arguments[] = {&params};
  kernel_->launch(static_cast<unsigned>(ceil_div(rows, config_.rows)),
                  static_cast<unsigned>(config_.threads()), stream, arguments);
}

}  // namespace stof::cuda
