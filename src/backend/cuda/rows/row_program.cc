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

std::vector<codegen::RowProgramConfig> encoder_row_programs(DType element, std::int64_t width) {
  using codegen::RowStep;
  // Operands in the order in which a segment's steps name them; norms are float32.
  const std::vector<codegen::RowInstruction> embedding = {{RowStep::kAddTable, 0},
                                                          {RowStep::kAddTable, 2},
                                                          {RowStep::kAddVector, 4},
                                                          {RowStep::kLayerNorm, 5, true},
                                                          {RowStep::kStore, 7}},
                                             residual = {{RowStep::kAddRow, 0},
                                                         {RowStep::kAddVector, 1},
                                                         {RowStep::kAddRow, 2},
                                                         {RowStep::kLayerNorm, 3, true},
                                                         {RowStep::kStore, 5}};
  constexpr int kAnySms = 128;
  std::vector<codegen::RowProgramConfig> configs;
  for (const auto& program : {embedding, residual})
    for (const std::int64_t rows : {1, 1 << 20}) {
      const auto all = row_program_configs(element, width, program, rows, kAnySms);
      if (!all.empty()) configs.push_back(all.front());
    }
  return configs;
}

}  // namespace stof::cuda
