#include "backend/cuda/attention/config_choice.h"

#include <algorithm>

#include "core/check.h"

namespace stof::cuda {

using codegen::KernelFamily;

std::vector<codegen::AttentionConfig> blockwise_configs(const AttentionProblem& problem,
                                                        bool shared_heads,
                                                        const KernelTarget& target,
                                                        const std::string& what) {
  std::vector<codegen::AttentionConfig> configs;
  if (infeasible(KernelFamily::kSm90, problem, target).empty())
    configs = sm90_configs(problem, shared_heads);
  if (!configs.empty()) return configs;
  const std::string reason = infeasible(KernelFamily::kSm80, problem, target);
  STOF_CHECK(reason.empty(), kUnsupported,
             "{} run on the block-wise kernels; the more general one {}", what, reason);
  return sm80_configs(problem, shared_heads, target);
}

void sort_candidates(std::vector<ConfigCandidate>* candidates) {
  std::stable_sort(candidates->begin(), candidates->end(),
                   [](const ConfigCandidate& a, const ConfigCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
}

const ConfigCandidate& choose_candidate(const std::vector<ConfigCandidate>& candidates,
                                        const std::string& kernel) {
  if (kernel.empty()) return candidates.front();
  std::string known;
  for (const ConfigCandidate& candidate : candidates) {
    if (candidate.config.name() == kernel) return candidate;
    known.append("\n  ").append(candidate.config.name());
  }
  throw_error(ErrorCode::kInvalidArgument, "kernel: expected one of{}\ngot {}", known, kernel);
}

}  // namespace stof::cuda
