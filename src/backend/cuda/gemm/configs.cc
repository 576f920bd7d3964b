#include "backend/cuda/gemm/configs.h"

#include <algorithm>
#include <cmath>

#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::GemmConfig;
using codegen::GemmSchedule;
using codegen::GemmStep;

constexpr int kBlockK = 64;  // columns of x in a stage

struct Shape {
  GemmSchedule schedule;
  int tile_m, tile_n;
  int cluster_k = 1, blocks_per_sm = 1;
};

// README.md of kernels/gemm/sm90 says what each is for.
constexpr Shape kShapes[] = {
    {GemmSchedule::kPingPong, 128, 192},    {GemmSchedule::kPingPong, 128, 160},
    {GemmSchedule::kPingPong, 128, 128},    {GemmSchedule::kPingPong, 128, 96},
    {GemmSchedule::kPingPong, 128, 64},     {GemmSchedule::kPingPong, 64, 256},
    {GemmSchedule::kPingPong, 64, 192},     {GemmSchedule::kPingPong, 64, 128},
    {GemmSchedule::kPingPong, 64, 64},      {GemmSchedule::kCooperative, 128, 256},
    {GemmSchedule::kCooperative, 128, 192}, {GemmSchedule::kCooperative, 128, 128},
    {GemmSchedule::kCooperative, 128, 96},  {GemmSchedule::kCooperative, 128, 64},
    {GemmSchedule::kCooperative, 256, 192}, {GemmSchedule::kCooperative, 256, 128},
    {GemmSchedule::kSingle, 64, 128},       {GemmSchedule::kSingle, 64, 96},
    {GemmSchedule::kSingle, 64, 64},        {GemmSchedule::kSingle, 64, 48},
    {GemmSchedule::kSingle, 64, 32},        {GemmSchedule::kSingle, 64, 64, 1, 2},
    {GemmSchedule::kSingle, 64, 48, 1, 2},  {GemmSchedule::kSingle, 64, 32, 1, 2},
    {GemmSchedule::kSplit, 64, 128},        {GemmSchedule::kSplit, 64, 96},
    {GemmSchedule::kSplit, 64, 64},         {GemmSchedule::kSplit, 64, 48},
    {GemmSchedule::kSplit, 64, 32},         {GemmSchedule::kSingle, 64, 64, 2},
    {GemmSchedule::kSingle, 64, 48, 2},     {GemmSchedule::kSingle, 64, 32, 2},
    {GemmSchedule::kSingle, 64, 64, 4},     {GemmSchedule::kSingle, 64, 48, 4},
    {GemmSchedule::kSingle, 64, 32, 4},     {GemmSchedule::kSplit, 64, 64, 2},
    {GemmSchedule::kSplit, 64, 48, 2},      {GemmSchedule::kSplit, 64, 32, 2},
};

/// As many stages as fit, up to 8 where tiles follow each other and the 12 of K = 768 where one
/// tile's loads are all to be under way.
int most_stages(GemmConfig config) {
  const int most = config.large() ? 8 : 12;
  for (config.stages = most; config.stages > 2; --config.stages)
    if (config.problem().empty()) break;
  return config.stages;
}

GemmConfig config_of(const Shape& shape, const GemmProblem& problem) {
  GemmConfig config;
  config.element = problem.element;
  config.bias = problem.bias;
  config.schedule = shape.schedule;
  config.tile_m = shape.tile_m;
  config.tile_n = shape.tile_n;
  config.cluster_k = shape.cluster_k;
  config.blocks_per_sm = shape.blocks_per_sm;
  config.steps = problem.steps;
  config.stages = most_stages(config);
  return config;
}

/// Why a kernel that exists does not run this problem; empty where it does.
std::string refusal(const GemmConfig& config, const GemmProblem& problem) {
  if (std::string text = config.problem(); !text.empty()) return text;
  const std::int64_t k_blocks = ceil_div(problem.in, kBlockK);
  if (k_blocks < config.cluster_k)
    return fmt::format("cluster_k: {} blocks share {} blocks of K", config.cluster_k, k_blocks);
  const std::int64_t tiles =
      ceil_div(problem.rows, config.tile_m) * ceil_div(problem.out, config.tile_n);
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;
  if (tiles * config.cluster_k > kMostTiles)
    return fmt::format("{} tiles are more than {}", tiles, kMostTiles / config.cluster_k);
  return "";
}

}  // namespace

std::vector<GemmConfig> registered_gemm_configs(const GemmProblem& problem) {
  std::vector<GemmConfig> configs;
  for (const Shape& shape : kShapes) {
    GemmConfig config = config_of(shape, problem);
    if (config.problem().empty()) configs.push_back(std::move(config));
  }
  return configs;
}

double predict_gemm_us(const GemmProblem& problem, const GemmConfig& config, int num_sms) {
  // Clock under load; cycles of the tensor cores are reached to 85 % by large tiles; a
  // multiprocessor takes some 50 bytes a cycle from the second-level cache, and waits 1,100 cycles
  // for the first of them. All from an H200 (README.md of kernels/gemm/sm90).
  constexpr double kGhz = 1.8, kReached = 0.85, kBytesPerCycle = 50, kLatency = 1100;
  constexpr double kStart = 2500, kExchange = 900;
  const int n = config.tile_n;
  const std::int64_t tiles = ceil_div(problem.rows, config.tile_m) * ceil_div(problem.out, n);
  const double k_blocks =
      static_cast<double>(ceil_div(ceil_div(problem.in, kBlockK), config.cluster_k));
  // A wgmma of 64 rows and 16 columns of K reads 2 KiB of x and 32 n bytes of W at 128 bytes a
  // cycle.
  const double wgmma = std::max(64.0 * 16 * n / 2048, (2048.0 + 32 * n) / 128);
  const double tensor = wgmma * 4 * (config.tile_m / 64.0) / kReached;
  const double feed = 128.0 * (config.tile_m + n) / kBytesPerCycle;
  const int together = config.blocks_per_sm;
  // What takes less time does not hide whole beside what takes more.
  constexpr double kShown = 0.15;
  const double block = std::max({tensor * together, feed * together, kLatency / config.stages}) +
                       kShown * together * std::min(tensor, feed);
  const double main = k_blocks * block;
  // A warpgroup stores 64 rows of a column in about 8 cycles, activations included.
  const double store =
      8.0 * n * config.slabs() * together + (config.partners() > 1 ? kExchange : 0);
  const double slots = static_cast<double>(num_sms) * together / config.cluster_k;
  const double waves = std::ceil(static_cast<double>(tiles) / slots);
  const double cycles = config.schedule == GemmSchedule::kPingPong
                            ? std::max(waves * main, waves / 2 * (main + store)) + store
                            : waves * (main + store);
  return (kStart + kLatency + cycles) / (kGhz * 1000);
}

GemmCandidates gemm_candidates(const GemmProblem& problem, const DeviceFacts& facts) {
  GemmCandidates candidates;
  std::string all = problem.unsupported();
  if (all.empty() && (facts.major != 9 || facts.minor != 0))
    all = fmt::format("needs compute capability 9.0, the GPU has {}.{}", facts.major, facts.minor);
  if (!all.empty()) {
    candidates.refused.push_back({"sm90", all});
    return candidates;
  }
  for (const Shape& shape : kShapes) {
    const GemmConfig config = config_of(shape, problem);
    if (std::string reason = refusal(config, problem); !reason.empty())
      candidates.refused.push_back({config.shape(), reason});
    else
      candidates.feasible.push_back({config, predict_gemm_us(problem, config, facts.num_sms)});
  }
  std::stable_sort(candidates.feasible.begin(), candidates.feasible.end(),
                   [](const GemmCandidate& a, const GemmCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return candidates;
}

GemmConfig default_gemm_config(const GemmProblem& problem, const DeviceFacts& facts) {
  const GemmCandidates candidates = gemm_candidates(problem, facts);
  if (!candidates.feasible.empty()) return candidates.feasible.front().config;
  std::string reasons;
  for (const GemmRefusal& refusal : candidates.refused)
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", refusal.shape, refusal.reason);
  throw_error(ErrorCode::kUnsupported, "{}: no kernel of this library takes it: {}",
              problem.describe(), reasons);
}

}  // namespace stof::cuda
