#include "backend/cuda/gemm/choice.h"

#include "core/check.h"

namespace stof::cuda {

using codegen::GemmConfig;
using codegen::GemmSchedule;

void expect_family(const fusion::Choice& choice, const char* family) {
  STOF_CHECK(choice.family == family, kInvalidArgument, "choice: expected {}, got {}", family,
             choice.text());
}

int choice_number(const fusion::Choice& choice, const char* name, int least, int most) {
  const std::int64_t value = choice.at(name);
  STOF_CHECK(value >= least && value <= most, kInvalidArgument,
             "choice {}: {}: expected {} to {}, got {}", choice.text(), name, least, most, value);
  return static_cast<int>(value);
}

void expect_fit(const fusion::Choice& choice, const std::string& problem,
                const std::string& reason) {
  STOF_CHECK(reason.empty(), kInvalidArgument, "choice {} for {}: {}", choice.text(), problem,
             reason);
}

namespace {

constexpr ChoiceField<GemmConfig> kFields[] = {
    {"tile_m", &GemmConfig::tile_m},       {"tile_n", &GemmConfig::tile_n},
    {"stages", &GemmConfig::stages},       {"cluster_k", &GemmConfig::cluster_k},
    {"cluster_n", &GemmConfig::cluster_n}, {"blocks_per_sm", &GemmConfig::blocks_per_sm}};

}  // namespace

fusion::Choice choice_of(const GemmConfig& config) {
  fusion::Choice choice = choice_by(kSm90GemmFamily, kFields, config);
  choice.parameters["schedule"] = static_cast<std::int64_t>(config.schedule);
  return choice;
}

GemmConfig gemm_config_of(const fusion::Choice& choice, const GemmProblem& problem) {
  expect_family(choice, kSm90GemmFamily);
  GemmConfig config;
  config.element = problem.element;
  config.bias = problem.bias;
  config.gamma = problem.gamma;
  config.rope_dim = problem.rope_dim();
  config.store_dim = problem.store_dim();
  config.steps = problem.steps;
  constexpr int kLast = static_cast<int>(GemmSchedule::kSplit);
  config.schedule = static_cast<GemmSchedule>(choice_number(choice, "schedule", 0, kLast));
  return config_by(kSm90GemmFamily, kFields, choice, config, problem.describe());
}

}  // namespace stof::cuda
