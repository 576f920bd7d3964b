#include "codegen/gemm_sm80.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/check.h"

namespace stof::codegen {

bool Sm80GemmConfig::has(GemmStep step) const {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

int Sm80GemmConfig::shared_bytes() const {
  const int ring = stages * (tile_m + tile_n) * tile_k * 2;
  const int results = tile_m * out_n() * 2;  // once the ring is done with
  return std::max(ring, results) + (splits > 1 ? 16 : 0);
}

std::string Sm80GemmConfig::shape() const {
  std::string text =
      fmt::format("{}x{}x{}w{}x{}s{}", tile_m, tile_n, tile_k, warps_m, warps_n, stages);
  if (splits > 1) text += fmt::format("k{}", splits);
  if (blocks_per_sm > 1) text += fmt::format("b{}", blocks_per_sm);
  return text;
}

std::string Sm80GemmConfig::name() const {
  std::string text =
      fmt::format("gemm_sm80_{}_{}", element == DType::kBFloat16 ? "bf16" : "fp16", shape());
  for (const GemmStep step : steps) {
    text += fmt::format("_{}", to_string(step));
    if (step == GemmStep::kBias && bias != DType::kFloat32) text += "16";
  }
  return text;
}

std::string Sm80GemmConfig::problem() const {
  if (element != DType::kFloat16 && element != DType::kBFloat16)
    return fmt::format("element: expected float16 or bfloat16, got {}", stof::to_string(element));
  if (bias != DType::kFloat32 && bias != element)
    return fmt::format("bias: expected float32 or {}, got {}", stof::to_string(element),
                       stof::to_string(bias));
  if (std::string text = problem_of(steps); !text.empty()) return text;
  constexpr GemmStep kSteps[] = {
      GemmStep::kBias,     GemmStep::kRelu,     GemmStep::kGeluErf,
      GemmStep::kGeluTanh, GemmStep::kSilu,     GemmStep::kGate,
      GemmStep::kResidual, GemmStep::kRowScale, GemmStep::kRowStatistics};
  for (const GemmStep step : steps)
    if (std::find(std::begin(kSteps), std::end(kSteps), step) == std::end(kSteps))
      return fmt::format("steps: these kernels have no {}", to_string(step));
  if (warps_m < 1 || warps_n < 1 || warps_m * warps_n > 16)
    return fmt::format("warps: expected 1 to 16, got {} x {}", warps_m, warps_n);
  if (tile_m < 16 || tile_m % (16 * warps_m) != 0 || tile_m > 256)
    return fmt::format("tile_m: expected a multiple of 16 rows a warp up to 256, got {} of {}",
                       tile_m, warps_m);
  // Results leave in rows of 16, 32, 64 or 128 bytes.
  const int step_n = has(GemmStep::kGate) ? 32 : 16;
  const int warp_n = tile_n / warps_n, warp_out = out_n() / warps_n;
  const bool rows = warp_out == 16 || warp_out == 32 || warp_out == 64;
  if (tile_n % (step_n * warps_n) != 0 || warp_n > 64 || !rows)
    return fmt::format("tile_n: expected {}32 or 64 columns a warp, got {} of {}",
                       has(GemmStep::kGate) ? "" : "16, ", tile_n, warps_n);
  if (tile_k != 32 && tile_k != 64) return fmt::format("tile_k: expected 32 or 64, got {}", tile_k);
  if (accumulators() > 128)
    return fmt::format("tile: {} accumulators a thread are more than 128", accumulators());
  if (stages < 2 || stages > 8) return fmt::format("stages: expected 2 to 8, got {}", stages);
  if (splits != 1 && splits != 2 && splits != 4 && splits != 8)
    return fmt::format("splits: expected 1, 2, 4 or 8 that share a sum, got {}", splits);
  if (blocks_per_sm < 1 || blocks_per_sm * threads() > 1536)
    return fmt::format("blocks_per_sm: expected at most 1536 threads, got {} of {}", blocks_per_sm,
                       threads());
  return "";
}

void Sm80GemmConfig::validate() const {
  const std::string text = problem();
  STOF_CHECK(text.empty(), kInternal, "{}: {}", name(), text);
}

std::string emit_gemm(const Sm80GemmConfig& config) {
  config.validate();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return emit_head(config.name(), "", "gemm/sm80/kernel.cuh", config.steps) +
         fmt::format(
             R"(struct Config {{
  using Element = ptx::{element};
  static constexpr int kTileM = {m}, kTileN = {n}, kTileK = {k}, kStages = {stages}, kWarpsM = {warps_m}, kWarpsN = {warps_n}, kSplits = {splits};
  static constexpr bool kGate = {gate}, kBias = {bias}, kFloatBias = {floatbias}, kResidual = {residual};
  static constexpr bool kRowScale = {scale}, kStatistics = {statistics};
}};
static_assert(Sm80GemmSizes<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
static_assert(Sm80GemmSizes<Config>::kThreads == {threads}, "host and device disagree on threads");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
gemm(const __grid_constant__ stof::Sm80GemmParams params) {{
  stof::sm80_gemm<stof::Config>(params);
}}
)",
             fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
             fmt::arg("m", config.tile_m), fmt::arg("n", config.tile_n),
             fmt::arg("k", config.tile_k), fmt::arg("stages", config.stages),
             fmt::arg("warps_m", config.warps_m), fmt::arg("warps_n", config.warps_n),
             fmt::arg("splits", config.splits), fmt::arg("gate", flag(config.has(GemmStep::kGate))),
             fmt::arg("bias", flag(config.has(GemmStep::kBias))),
             fmt::arg("floatbias", flag(config.bias == DType::kFloat32)),
             fmt::arg("residual", flag(config.has(GemmStep::kResidual))),
             fmt::arg("scale", flag(config.has(GemmStep::kRowScale))),
             fmt::arg("statistics", flag(config.has(GemmStep::kRowStatistics))),
             fmt::arg("shared", config.shared_bytes()), fmt::arg("threads", config.threads()),
             fmt::arg("blocks", config.blocks_per_sm));
}

}  // namespace stof::codegen
