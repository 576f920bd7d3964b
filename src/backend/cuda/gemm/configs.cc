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

constexpr int kBlockK = 64;               // columns of x in a stage
constexpr std::int64_t kMostCluster = 8;  // blocks of a cluster that every GPU takes

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
    {GemmSchedule::kSingle, 64, 64, 4, 2},  {GemmSchedule::kSingle, 64, 48, 4, 2},
    {GemmSchedule::kSingle, 64, 32, 4, 2},  {GemmSchedule::kSingle, 64, 64, 2, 2},
    {GemmSchedule::kSingle, 64, 48, 2, 2},  {GemmSchedule::kSplit, 64, 64, 2},
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
  config.gamma = problem.gamma;
  config.rope_dim = problem.rope_dim();
  config.store_dim = problem.store_dim();
  config.schedule = shape.schedule;
  config.tile_m = shape.tile_m;
  config.tile_n = shape.tile_n;
  config.cluster_k = shape.cluster_k;
  config.blocks_per_sm = shape.blocks_per_sm;
  config.steps = problem.steps;
  if (problem.has_norm() && problem.out % shape.tile_n == 0)
    config.cluster_n =
        static_cast<int>(std::min<std::int64_t>(problem.out / shape.tile_n, kMostCluster));
  config.stages = most_stages(config);
  return config;
}

}  // namespace

std::string gemm_refusal(const GemmConfig& config, const GemmProblem& problem) {
  if (std::string text = config.problem(); !text.empty()) return text;
  if (problem.has_norm() && config.cluster_n * config.tile_n != problem.out)
    return fmt::format("cluster_n: rows of {} columns are not {} tiles of {}", problem.out,
                       config.cluster_n, config.tile_n);
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

std::vector<GemmConfig> registered_gemm_configs(const GemmProblem& problem) {
  std::vector<GemmConfig> configs;
  for (const Shape& shape : kShapes) {
    GemmConfig config = config_of(shape, problem);
    const bool whole_rows = !problem.has_norm() || config.cluster_n * config.tile_n == problem.out;
    if (config.problem().empty() && whole_rows) configs.push_back(std::move(config));
  }
  return configs;
}

double predict_gemm_us(const GemmProblem& problem, const GemmConfig& config, int num_sms) {
  // Clock under load; cycles of the tensor cores are reached to 85 % by large tiles; a
  // multiprocessor takes some 50 bytes a cycle from the second-level cache, and waits 1,100 cycles
  // for the first of them. All from an H200 (README.md of kernels/gemm/sm90).
  constexpr double kGhz = 1.8, kReached = 0.85, kBytesPerCycle = 50, kLatency = 1100;
  constexpr double kStart = 1800, kExchange = 900;
  // What takes less time does not hide whole beside what takes more.
  constexpr double kShown = 0.15;
  const int n = config.tile_n, together = config.blocks_per_sm;
  const std::int64_t tiles = ceil_div(problem.rows, config.tile_m) * ceil_div(problem.out, n);
  const double k_blocks =
      static_cast<double>(ceil_div(ceil_div(problem.in, kBlockK), config.cluster_k));
  // A wgmma of 64 rows and 16 columns of K reads 2 KiB of x and 32 n bytes of W at 128 bytes a
  // cycle.
  const double wgmma = std::max(64.0 * 16 * n / 2048, (2048.0 + 32 * n) / 128);
  const double tensor = wgmma * 4 * (config.tile_m / 64.0) / kReached;
  const double feed = 128.0 * (config.tile_m + n) / kBytesPerCycle;
  const double block = std::max({tensor * together, feed * together, kLatency / config.stages}) +
                       kShown * together * std::min(tensor, feed);
  const double main = k_blocks * block;

  // A warpgroup stores 64 rows of a column in about 8 cycles; what else it does takes instructions,
  // which warpgroups that store together share.
  const bool ping_pong = config.schedule == GemmSchedule::kPingPong;
  double column = 8;
  for (const GemmStep step : problem.steps) {
    const bool activation = step == GemmStep::kGeluErf || step == GemmStep::kGeluTanh;
    const bool reads = step == GemmStep::kResidual || step == GemmStep::kRope;
    column += activation ? (ping_pong ? 5 : 8) : reads ? 2 : 0;
  }
  if (config.has_norm()) column *= 2;
  const bool exchange = config.partners() > 1 || config.cluster_n > 1;
  const double store = column * n * config.slabs() * together + (exchange ? kExchange : 0);

  // The chip's parts can't be cut into clusters without remainder.
  const int cluster = config.cluster_blocks();
  const double usable = cluster == 1 ? 1 : cluster == 2 ? 0.97 : 0.85;
  const double at_once = std::max(1.0, std::floor(usable * num_sms * together / cluster));
  const double shares = static_cast<double>(tiles) / config.cluster_n;  // a cluster takes together
  const double waves = std::ceil(shares / at_once);
  // The next kernel loads its weights beside this one where both find room.
  constexpr double kOverlap = 1300, kRoom = 1.1;
  const bool room =
      2.0 * static_cast<double>(tiles * config.cluster_k) <= kRoom * num_sms * together;
  constexpr double kMoreThreads = 100;
  const double start =
      kStart + kLatency - (room ? kOverlap : 0) + (config.large() ? kMoreThreads : 0);
  // Blocks that share sums take one tile: the next starts anew.
  if (config.partners() > 1) return waves * (start + main + store) / (kGhz * 1000);
  const double cycles = ping_pong ? std::max(waves * main, waves / 2 * (main + store)) + store
                                  : waves * (main + store);
  return (start + cycles) / (kGhz * 1000);
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
    if (std::string reason = gemm_refusal(config, problem); !reason.empty())
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
