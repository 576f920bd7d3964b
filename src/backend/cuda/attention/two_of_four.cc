#include "backend/cuda/attention/two_of_four.h"

#include <algorithm>

#include "backend/cuda/attention/cost_model.h"
#include "core/check.h"
#include "stof/block_mask.h"

namespace stof::cuda {
namespace {

constexpr std::int64_t kMostHeadDim = 128;  // above, none has been measured

void check_problem(const AttentionProblem& problem, const KernelTarget& target) {
  for (const auto& [name, is_set] : {std::pair{"softcap", problem.softcap > 0},
                                     {"alibi", problem.alibi},
                                     {"bias", problem.bias},
                                     {"position_bias", problem.position_bias.num_buckets > 0},
                                     {"score_mod", !problem.score_mod.empty()}})
    STOF_CHECK(!is_set, kUnsupported,
               "{}: two of four keys are chosen by q k^T alone, expected none; prune first "
               "(mask::prune with nm(2, 4)) and run its mask",
               name);
  STOF_CHECK(std::max(problem.head_dim_qk, problem.head_dim_v) <= kMostHeadDim, kUnsupported,
             "head_dim: keeping two of four keys takes up to {}, got {} and {}", kMostHeadDim,
             problem.head_dim_qk, problem.head_dim_v);
  const std::string reason = infeasible(codegen::KernelFamily::kSm80, problem, target);
  STOF_CHECK(reason.empty(), kUnsupported, "keeping two of four keys: the kernel {}", reason);
}

}  // namespace

std::vector<codegen::AttentionConfig> two_of_four_configs(const AttentionProblem& problem,
                                                          bool shared_heads,
                                                          const KernelTarget& target) {
  check_problem(problem, target);
  std::vector<codegen::AttentionConfig> configs = sm80_configs(problem, shared_heads, target);
  // Beside what makes the choice, neither two groups of warps nor packed heads fit the registers at
  // head dimensions above 64; below, neither has ever been the fastest dense kernel.
  std::erase_if(configs, [](const auto& config) {
    return config.tile_kv % 32 != 0 || config.warpgroups != 1 || config.pack_heads;
  });
  for (auto& config : configs) config.two_of_four = true;
  return configs;
}

DeviceBlockwise two_of_four_pass(const AttentionProblem& problem, const mask::Mask& mask,
                                 const std::string& kernel, int alignment, const Device& device,
                                 PlanFacts* facts) {
  const DeviceFacts& gpu = device.facts();
  const KernelTarget target{gpu.major * 10 + gpu.minor, gpu.num_sms, alignment, gpu.name};
  const mask::ScoreShape shape{problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  const mask::BlockMask blocks =
      build_block_mask(mask.bind(shape, problem.alignment), shape, problem.alignment);
  std::vector<ConfigCandidate> candidates;
  for (const auto& config : two_of_four_configs(problem, blocks.head_extent() == 1, target))
    candidates.push_back({config, predict_us(make_workload(problem, blocks, config, target),
                                             unit_costs(config, target))});
  sort_candidates(&candidates);
  const ConfigCandidate& chosen = choose_candidate(candidates, kernel);
  facts->kernel = chosen.config.name();
  facts->predicted_us = chosen.predicted_us;
  const int num_blocks = DeviceBlockwise::num_blocks(chosen.config, device);
  const plan::MaskPlan plan = build_mask_plan(blocks, plan_config(chosen.config));
  return {chosen.config, 1, build_device_plan(problem, plan, chosen.config, num_blocks), device,
          facts};
}

}  // namespace stof::cuda
