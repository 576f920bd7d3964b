#include <fmt/core.h>

#include <algorithm>

#include "backend/cuda/attention/configs.h"

namespace stof::cuda {
namespace {

std::string dotted(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace

int KernelTarget::shared_per_sm() const {
  // CUDA C++ programming guide, "Technical specifications per compute capability".
  switch (compute_capability) {
    case 80:
    case 87:
      return 164 * 1024;
    case 90:
    case 100:
    case 103:
    case 110:
      return 228 * 1024;
    default:
      return 100 * 1024;
  }
}

std::string infeasible(codegen::KernelFamily family, const AttentionProblem& problem,
                       const KernelTarget& target) {
  const bool hopper = family == codegen::KernelFamily::kSm90;
  const std::int64_t widest = std::max(problem.head_dim_qk, problem.head_dim_v);
  const std::int64_t limit = hopper ? 256 : 512;
  if (hopper && target.compute_capability != 90)
    return fmt::format("needs compute capability 9.0, the GPU has {}",
                       dotted(target.compute_capability));
  if (target.compute_capability < 80)
    return fmt::format("needs compute capability 8.0 or later, the GPU has {}",
                       dotted(target.compute_capability));
  if (widest > limit)
    return fmt::format("takes head dimensions up to {}, the problem has {}", limit, widest);
  if (hopper && target.alignment % 16 != 0)
    return fmt::format("needs operands aligned to 16 bytes, the plan is for {}", target.alignment);
  return "";
}

}  // namespace stof::cuda
