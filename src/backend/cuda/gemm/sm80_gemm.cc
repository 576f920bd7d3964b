#include "backend/cuda/gemm/sm80_gemm.h"

#include <algorithm>

#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::Sm80GemmConfig;

const Kernel& kernel_of(const GemmProblem& problem, const Sm80GemmConfig& config,
                        const Device& device) {
  STOF_CHECK(config.element == problem.element && config.steps == problem.steps &&
                 config.bias == problem.bias,
             kInvalidArgument, "{}: configuration {} is for other steps or element types",
             problem.describe(), config.name());
  return gemm_kernel(config, problem.describe(), gemm_refusal(config, problem, device.facts()),
                     device);
}

/// Rows of x that are taken together while a column tile's W passes.
constexpr std::int64_t kBandRows = 1024;

}  // namespace

Sm80Gemm::Sm80Gemm(const GemmProblem& problem, const Sm80GemmConfig& config, const Device& device)
    : problem_(problem),
      config_(config),
      tiles_m_(ceil_div(problem.rows, config.tile_m)),
      tiles_n_(ceil_div(problem.out, config.tile_n)),
      kernel_(&kernel_of(problem, config, device)) {}

std::size_t Sm80Gemm::workspace_bytes() const {
  return static_cast<std::size_t>(tiles_m_ * tiles_n_ * config_.partial_bytes());
}

std::int64_t Sm80Gemm::statistics_columns() const { return tiles_n_ * config_.warps_n; }

Sm80GemmCall Sm80Gemm::bind(const GemmOperands& operands, CUdeviceptr workspace) const {
  const GemmProblem& p = problem_;
  check_operands(p, operands);
  check_workspace(workspace, workspace_bytes());
  const auto arrivals = make_arrivals(config_.splits > 1 ? tiles_m_ * tiles_n_ : 0);
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const Sm80GemmArguments arguments = {
      operands.x,
      operands.weight,
      operands.y,
      operands.residual,
      operands.bias,
      operands.row_scale,
      operands.statistics,
      config_.splits > 1 ? workspace : 0,
      arrivals ? arrivals->address() : 0,
      p.x_pitch(),
      p.y_pitch(),
      p.residual_pitch(),
      narrow(p.rows),
      narrow(p.in),
      narrow(p.out),
      narrow(tiles_m_),
      narrow(tiles_n_),
      narrow(std::max<std::int64_t>(1, kBandRows / config_.tile_m))};
  return {*kernel_, tiles_m_ * tiles_n_ * config_.splits, config_.threads(), arguments, arrivals};
}

}  // namespace stof::cuda
