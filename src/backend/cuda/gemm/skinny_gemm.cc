#include "backend/cuda/gemm/skinny_gemm.h"

#include <algorithm>

#include "backend/cuda/gemm/machine.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::RowPrologue;
using codegen::SkinnyGemmConfig;

const Kernel& kernel_of(const SkinnyProblem& problem, const SkinnyGemmConfig& config,
                        const Device& device) {
  const GemmProblem& product = problem.product;
  STOF_CHECK(config.element == product.element && config.steps == product.steps &&
                 config.bias == product.bias && config.gamma == product.gamma &&
                 config.prologue == problem.prologue && config.in == product.in &&
                 config.rope_dim == product.rope_dim(),
             kInvalidArgument, "{}: configuration {} is for other sizes, steps or element types",
             problem.describe(), config.name());
  // What is under way of the weights lies in the first-level cache: no more shared memory than the
  // blocks need. Behind a kernel that took all of it, products ran at two thirds of the bandwidth.
  const int shared = config.blocks_per_sm * (config.shared_bytes() + kReservedSharedBytes);
  const int all = shared_bytes_per_sm(device.facts());
  return gemm_kernel(config, problem.describe(), gemm_refusal(config, problem, device.facts()),
                     device, (100 * shared + all - 1) / all);
}

}  // namespace

SkinnyGemm::SkinnyGemm(const SkinnyProblem& problem, const SkinnyGemmConfig& config,
                       const Device& device)
    : problem_(problem),
      config_(config),
      tiles_(ceil_div(problem.product.out, config.tile_n())),
      kernel_(&kernel_of(problem, config, device)),
      slots_(static_cast<std::int64_t>(device.facts().num_sms) * config.blocks_per_sm) {}

std::size_t SkinnyGemm::workspace_bytes() const {
  return static_cast<std::size_t>(tiles_ * config_.partial_bytes());
}

SkinnyGemmCall SkinnyGemm::bind(const GemmOperands& operands, CUdeviceptr workspace) const {
  const GemmProblem& p = problem_.product;
  check_operands(p, operands, problem_.prologue != RowPrologue::kNone,
                 problem_.prologue == RowPrologue::kLayerNorm);
  check_workspace(workspace, workspace_bytes());
  const auto arrivals = make_arrivals(config_.splits > 1 ? tiles_ : 0);
  const SkinnyGemmArguments arguments = {operands.x,
                                         operands.weight,
                                         operands.y,
                                         operands.residual,
                                         operands.bias,
                                         operands.gamma,
                                         operands.beta,
                                         operands.positions,
                                         operands.frequencies,
                                         operands.slots,
                                         operands.cache,
                                         config_.splits > 1 ? workspace : 0,
                                         arrivals ? arrivals->address() : 0,
                                         p.x_pitch(),
                                         p.y_pitch(),
                                         p.residual_pitch(),
                                         p.cache_stride,
                                         static_cast<std::int32_t>(p.rotated),
                                         static_cast<std::int32_t>(p.cached),
                                         static_cast<std::int32_t>(p.rows),
                                         static_cast<std::int32_t>(p.out),
                                         static_cast<std::int32_t>(tiles_),
                                         static_cast<float>(p.epsilon)};
  // Blocks that share a tile's sum are neighbours; every block keeps its part of K.
  const std::int64_t shares = std::max<std::int64_t>(1, slots_ / config_.splits);
  return {*kernel_, std::min(tiles_, shares) * config_.splits, config_.threads(), arguments,
          arrivals};
}

}  // namespace stof::cuda
