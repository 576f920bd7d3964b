#include "backend/cuda/gemm/skinny_configs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/machine.h"
#include "backend/cuda/gemm/split_sums.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

using codegen::GemmStep;
using codegen::RowPrologue;
using codegen::SkinnyGemmConfig;

struct Shape {
  int warps_n, warps_k;
  int splits = 1, blocks_per_sm = 1;
};

// A block's 16 columns of y by as many warps as there are keep the most bytes under way; 32 and 64
// columns read x fewer times; split sums are for few columns.
constexpr Shape kShapes[] = {{1, 16},      {1, 8, 1, 2}, {2, 8},       {2, 4, 1, 2}, {4, 4},
                             {4, 2, 1, 2}, {1, 16, 2},   {1, 8, 2, 2}, {1, 8, 4, 2}, {2, 8, 2},
                             {2, 8, 4},    {2, 4, 4, 2}, {2, 4, 8, 2}, {4, 4, 4}};

/// What the problem decides of a configuration: types, norm, steps, K, room for the rows.
SkinnyGemmConfig problem_config(const SkinnyProblem& problem) {
  SkinnyGemmConfig config;
  config.element = problem.product.element;
  config.bias = problem.product.bias;
  config.gamma = problem.product.gamma;
  config.prologue = problem.prologue;
  config.steps = problem.product.steps;
  config.in = static_cast<int>(std::min<std::int64_t>(problem.product.in, 1 << 30));
  config.rope_dim = problem.product.rope_dim();
  config.tile_m = 8;
  while (config.tile_m < problem.product.rows && config.tile_m < kSkinnyRows) config.tile_m *= 2;
  return config;
}

SkinnyGemmConfig config_of(const Shape& shape, const SkinnyProblem& problem) {
  SkinnyGemmConfig config = problem_config(problem);
  config.warps_n = shape.warps_n;
  config.warps_k = shape.warps_k;
  config.splits = shape.splits;
  config.blocks_per_sm = shape.blocks_per_sm;
  // The sums of more rows than 16 need more registers than 512 threads an SM have.
  constexpr int kThreads = 256, kRows = 16;
  if (config.tile_m > kRows && config.threads() > kThreads)
    config.warps_k /= 2;
  else if (config.tile_m > kRows)
    config.blocks_per_sm = 1;
  return config;
}

}  // namespace

std::string SkinnyProblem::describe() const {
  const char* norm = prologue == RowPrologue::kLayerNorm ? "layer_norm, "
                     : prologue == RowPrologue::kRmsNorm ? "rms_norm, "
                                                         : "";
  return norm + product.describe();
}

std::string gemm_refusal(const SkinnyGemmConfig& config, const SkinnyProblem& problem,
                         const DeviceFacts& facts) {
  const GemmProblem& product = problem.product;
  if (facts.major < 8)
    return fmt::format("needs compute capability 8.0, the GPU has {}.{}", facts.major, facts.minor);
  if (std::string text = product.unsupported(); !text.empty()) return text;
  if (product.rows > config.tile_m)
    return fmt::format("rows: expected at most {}, got {}", config.tile_m, product.rows);
  if (std::string text = config.problem(); !text.empty()) return text;
  if (config.rope_dim > 0 && product.out % config.rope_dim != 0)
    return fmt::format("out: expected whole heads of {} where some are turned, got {} columns",
                       config.rope_dim, product.out);
  const int taken = config.blocks_per_sm * (config.shared_bytes() + kReservedSharedBytes);
  if (taken > shared_bytes_per_sm(facts))
    return fmt::format("shared memory: {} blocks of {} bytes are more than the GPU's {}",
                       config.blocks_per_sm, config.shared_bytes() + kReservedSharedBytes,
                       shared_bytes_per_sm(facts));
  if (ceil_div(product.out, config.tile_n()) * config.partial_bytes() > kSplitSumsBytes)
    return fmt::format("splits: parts of {} columns take more than {} bytes", product.out,
                       kSplitSumsBytes);
  return "";
}

double predict_gemm_us(const SkinnyProblem& problem, const SkinnyGemmConfig& config,
                       const DeviceFacts& facts) {
  const MachineRates machine = machine_rates(facts);
  // A trip to memory; what begins and ends a kernel; parts of sums to the cache and back.
  constexpr double kTripNs = 800, kEndsNs = 1800, kSplitNs = 1200;
  const GemmProblem& product = problem.product;
  const auto rows = static_cast<double>(product.rows), in = static_cast<double>(product.in);
  const double tiles = static_cast<double>(ceil_div(product.out, config.tile_n()));
  const double items = tiles * config.splits;
  const double blocks = std::min(items, static_cast<double>(facts.num_sms) * config.blocks_per_sm);
  const double on_one = std::ceil(blocks / facts.num_sms);  // of the blocks, on the fullest SM
  const double columns = in / config.splits;
  const double rounds = std::ceil(items / blocks);
  const double of_sm = 2 * config.tile_n() * columns * rounds * on_one;  // bytes of W
  const double cache = machine.cache_bytes * machine.ghz;                // bytes a nanosecond
  const double under_way = 32.0 * config.unroll * config.threads() * on_one;
  // What is under way before the previous kernel has ended costs half of its time, as not all
  // blocks find room so early.
  const double early = std::min(1.0, under_way / of_sm) / 2;
  const double stream =
      (1 - early) * std::max({2 * in * static_cast<double>(product.out) / machine.memory_gb_s,
                              of_sm / cache, of_sm / (under_way / kTripNs)});
  // Rows come beside the first weights; a norm reads them whole before anything is multiplied.
  const bool norm = problem.prologue != RowPrologue::kNone;
  const double fill = 2 * rows * (norm ? in : columns) * on_one / cache + (norm ? kTripNs : 0);
  // Fragments of x are read once for 16 columns of y, sums once a warp.
  const double shared = 2 * config.tile_m * columns * config.warps_n * rounds * on_one / 128;
  const double sums =
      8.0 * config.tile_m * config.tile_n() * config.warps_k * rounds * on_one / 128;
  return (kEndsNs + kTripNs + fill + std::max(stream, shared / machine.ghz) + sums / machine.ghz +
          (config.splits > 1 ? kSplitNs : 0)) /
         1000;
}

std::vector<SkinnyGemmCandidate> skinny_gemm_candidates(const SkinnyProblem& problem,
                                                        const DeviceFacts& facts) {
  std::vector<SkinnyGemmCandidate> candidates;
  std::set<std::string> shapes;
  for (const Shape& shape : kShapes) {
    const SkinnyGemmConfig config = config_of(shape, problem);
    if (gemm_refusal(config, problem, facts).empty() && shapes.insert(config.shape()).second)
      candidates.push_back({config, predict_gemm_us(problem, config, facts)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const SkinnyGemmCandidate& a, const SkinnyGemmCandidate& b) {
                     return a.predicted_us < b.predicted_us;
                   });
  return candidates;
}

namespace {

constexpr ChoiceField<SkinnyGemmConfig> kFields[] = {
    {"tile_m", &SkinnyGemmConfig::tile_m},   {"warps_n", &SkinnyGemmConfig::warps_n},
    {"warps_k", &SkinnyGemmConfig::warps_k}, {"unroll", &SkinnyGemmConfig::unroll},
    {"splits", &SkinnyGemmConfig::splits},   {"blocks_per_sm", &SkinnyGemmConfig::blocks_per_sm}};

}  // namespace

fusion::Choice choice_of(const SkinnyGemmConfig& config) {
  return choice_by(kSkinnyGemmFamily, kFields, config);
}

SkinnyGemmConfig skinny_gemm_config_of(const fusion::Choice& choice, const SkinnyProblem& problem) {
  return config_by(kSkinnyGemmFamily, kFields, choice, problem_config(problem), problem.describe());
}

}  // namespace stof::cuda
