#include "backend/cuda/gemm/sm80_configs.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/machine.h"
#include "backend/cuda/gemm/split_sums.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::GemmStep;
using codegen::Sm80GemmConfig;

struct Shape {
  int tile_m, tile_n, tile_k, warps_m, warps_n;
  int splits = 1, blocks_per_sm = 1;
};

// Warps of 64 x 64 read least from shared memory for their products; two blocks an SM hide each
// other's epilogues; small tiles and split sums are for few rows.
constexpr Shape kShapes[] = {
    {256, 128, 32, 4, 2},       {128, 256, 32, 2, 4},      {128, 128, 32, 2, 4},
    {128, 128, 32, 2, 2, 1, 2}, {128, 128, 64, 2, 4},      {128, 64, 64, 2, 2, 1, 2},
    {128, 64, 32, 2, 2, 1, 2},  {64, 128, 64, 2, 2, 1, 2}, {64, 128, 32, 2, 2, 1, 2},
    {64, 64, 64, 2, 2, 1, 2},   {64, 64, 64, 2, 2, 1, 3},  {64, 64, 64, 2, 2, 2, 2},
    {64, 64, 64, 2, 2, 4, 2},   {32, 128, 64, 1, 4, 1, 2}, {32, 64, 64, 2, 2, 1, 3},
    {32, 64, 64, 2, 2, 4, 3},   {16, 128, 64, 1, 4, 1, 2}, {16, 64, 64, 1, 2, 1, 3},
    {16, 128, 64, 1, 4, 4, 2},  {16, 128, 64, 1, 4, 8, 2}, {32, 128, 64, 1, 4, 4, 2},
    {64, 128, 64, 2, 2, 2, 2},  {128, 128, 64, 2, 4, 2},
};

bool fits(const Sm80GemmConfig& config, const DeviceFacts& facts) {
  return config.blocks_per_sm * (config.shared_bytes() + kReservedSharedBytes) <=
         shared_bytes_per_sm(facts);
}

/// What the problem decides of a configuration.
Sm80GemmConfig problem_config(const GemmProblem& problem) {
  Sm80GemmConfig config;
  config.element = problem.element;
  config.bias = problem.bias;
  config.steps = problem.steps;
  return config;
}

/// With as many stages as fit, up to what hides a trip to memory.
Sm80GemmConfig config_of(const Shape& shape, const GemmProblem& problem, const DeviceFacts& facts) {
  Sm80GemmConfig config = problem_config(problem);
  config.tile_m = shape.tile_m;
  config.tile_n = shape.tile_n;
  config.tile_k = shape.tile_k;
  config.warps_m = shape.warps_m;
  config.warps_n = shape.warps_n;
  config.splits = shape.splits;
  config.blocks_per_sm = shape.blocks_per_sm;
  constexpr int kMostStages = 6;
  for (config.stages = kMostStages; config.stages > 2; --config.stages)
    if (fits(config, facts)) break;
  return config;
}

}  // namespace

std::string gemm_refusal(const Sm80GemmConfig& config, const GemmProblem& problem,
                         const DeviceFacts& facts) {
  if (facts.major < 8)
    return fmt::format("needs compute capability 8.0, the GPU has {}.{}", facts.major, facts.minor);
  if (std::string text = problem.unsupported(); !text.empty()) return text;
  if (std::string text = config.problem(); !text.empty()) return text;
  if (!fits(config, facts))
    return fmt::format("shared memory: {} blocks of {} bytes are more than the GPU's {}",
                       config.blocks_per_sm, config.shared_bytes() + kReservedSharedBytes,
                       shared_bytes_per_sm(facts));
  const std::int64_t k_blocks = ceil_div(problem.in, config.tile_k);
  if (k_blocks < config.splits)
    return fmt::format("splits: {} blocks share {} blocks of K", config.splits, k_blocks);
  const std::int64_t tiles =
      ceil_div(problem.rows, config.tile_m) * ceil_div(problem.out, config.tile_n);
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;
  if (tiles * config.splits > kMostBlocks)
    return fmt::format("{} tiles are more than {}", tiles, kMostBlocks / config.splits);
  if (tiles * config.partial_bytes() > kSplitSumsBytes)
    return fmt::format("splits: parts of {} tiles take more than {} bytes", tiles, kSplitSumsBytes);
  return "";
}

std::vector<Sm80GemmConfig> registered_sm80_gemm_configs(const GemmProblem& problem,
                                                         const DeviceFacts& facts) {
  std::vector<Sm80GemmConfig> configs;
  for (const Shape& shape : kShapes) {
    Sm80GemmConfig config = config_of(shape, problem, facts);
    if (config.problem().empty() && fits(config, facts)) configs.push_back(std::move(config));
  }
  return configs;
}

double predict_gemm_us(const GemmProblem& problem, const Sm80GemmConfig& config,
                       const DeviceFacts& facts) {
  const MachineRates machine = machine_rates(facts);
  constexpr double kReached = 0.85, kLatency = 700, kStart = 2500, kSharedBytes = 128;
  const double m = config.tile_m, n = config.tile_n, k = config.tile_k;
  const double warp_m = m / config.warps_m, warp_n = n / config.warps_n;
  const double warps = config.warps_m * config.warps_n;
  const double tiles = static_cast<double>(ceil_div(problem.rows, config.tile_m) *
                                           ceil_div(problem.out, config.tile_n)) *
                       config.splits;
  const double together = std::min<double>(config.blocks_per_sm, std::ceil(tiles / facts.num_sms));
  // A block of K: products, matrices out of shared memory and copies into it, and what arrives.
  const double tensor = m * n * k / machine.multiply_adds / kReached;
  const double shared = 2 * k * (warps * (warp_m + warp_n) + m + n) / kSharedBytes;
  const double feed = 2 * k * (m + n) / machine.cache_bytes;
  // Four warps have a tensor core each and wait for their own fragments.
  const double alone = tensor * (warps * together < 8 ? 1.25 : 1) * std::max(1.0, 4 / warps);
  const double block = std::max({std::max(alone, tensor * together), shared * together,
                                 feed * together, kLatency / (config.stages - 1)});
  const double k_blocks =
      static_cast<double>(ceil_div(ceil_div(problem.in, config.tile_k), config.splits));
  double column = 2;  // cycles a row of 32 columns: conversions and stores
  for (const GemmStep step : problem.steps) {
    const bool activation = step == GemmStep::kGeluErf || step == GemmStep::kGeluTanh;
    column += activation ? 4 : step == GemmStep::kResidual ? 2 : 0;
  }
  double store = column * m * n / 32 / 4 + kLatency * (problem.has(GemmStep::kResidual) ? 2 : 1);
  // Parts go to the second-level cache and come back.
  if (config.splits > 1) store += 3 * kLatency + 8 * m * n / machine.cache_bytes;
  const double waves = std::ceil(tiles / (facts.num_sms * together));
  // Blocks that run together hide each other's beginnings and ends but for the last.
  const double shown = waves > 1 && together > 1 ? 0.5 : 1.0;
  const double cycles =
      waves * k_blocks * block + (1 + (waves - 1) * shown) * (kLatency + store) + kStart;
  return cycles / (machine.ghz * 1000);
}

std::vector<Sm80GemmCandidate> sm80_gemm_candidates(const GemmProblem& problem,
                                                    const DeviceFacts& facts) {
  std::vector<Sm80GemmCandidate> candidates;
  for (const Sm80GemmConfig& config : registered_sm80_gemm_configs(problem, facts))
    if (gemm_refusal(config, problem, facts).empty())
      candidates.push_back({config, predict_gemm_us(problem, config, facts)});
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Sm80GemmCandidate& a, const Sm80GemmCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return candidates;
}

namespace {

constexpr ChoiceField<Sm80GemmConfig> kFields[] = {
    {"tile_m", &Sm80GemmConfig::tile_m},   {"tile_n", &Sm80GemmConfig::tile_n},
    {"tile_k", &Sm80GemmConfig::tile_k},   {"warps_m", &Sm80GemmConfig::warps_m},
    {"warps_n", &Sm80GemmConfig::warps_n}, {"stages", &Sm80GemmConfig::stages},
    {"splits", &Sm80GemmConfig::splits},   {"blocks_per_sm", &Sm80GemmConfig::blocks_per_sm}};

}  // namespace

fusion::Choice choice_of(const Sm80GemmConfig& config) {
  return choice_by(kSm80GemmFamily, kFields, config);
}

Sm80GemmConfig sm80_gemm_config_of(const fusion::Choice& choice, const GemmProblem& problem) {
  return config_by(kSm80GemmFamily, kFields, choice, problem_config(problem), problem.describe());
}

}  // namespace stof::cuda
