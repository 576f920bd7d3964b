#include "backend/cuda/gemm/choice.h"

#include "core/check.h"

namespace stof::cuda {

using codegen::GemmConfig;
using codegen::GemmSchedule;

fusion::Choice choice_of(const GemmConfig& config) {
  return {kSm90GemmFamily,
          {{"schedule", static_cast<std::int64_t>(config.schedule)},
           {"tile_m", config.tile_m},
           {"tile_n", config.tile_n},
           {"stages", config.stages},
           {"cluster_k", config.cluster_k},
           {"cluster_n", config.cluster_n},
           {"blocks_per_sm", config.blocks_per_sm}}};
}

GemmConfig gemm_config_of(const fusion::Choice& choice, const GemmProblem& problem) {
  STOF_CHECK(choice.family == kSm90GemmFamily, kInvalidArgument, "choice: expected {}, got {}",
             kSm90GemmFamily, choice.text());
  const auto number = [&](const char* name, int most) {
    const std::int64_t value = choice.at(name);
    STOF_CHECK(value >= 0 && value <= most, kInvalidArgument,
               "choice {}: {}: expected 0 to {}, got {}", choice.text(), name, most, value);
    return static_cast<int>(value);
  };
  constexpr int kMost = 1024;
  GemmConfig config;
  config.element = problem.element;
  config.bias = problem.bias;
  config.gamma = problem.gamma;
  config.rope_dim = problem.rope_dim();
  config.store_dim = problem.store_dim();
  config.steps = problem.steps;
  config.schedule =
      static_cast<GemmSchedule>(number("schedule", static_cast<int>(GemmSchedule::kSplit)));
  config.tile_m = number("tile_m", kMost);
  config.tile_n = number("tile_n", kMost);
  config.stages = number("stages", kMost);
  config.cluster_k = number("cluster_k", kMost);
  config.cluster_n = number("cluster_n", kMost);
  config.blocks_per_sm = number("blocks_per_sm", kMost);
  const std::string reason = config.problem();
  STOF_CHECK(reason.empty(), kInvalidArgument, "choice {} for {}: {}", choice.text(),
             problem.describe(), reason);
  return config;
}

}  // namespace stof::cuda
