#include "codegen/gemm_skinny.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/bits.h"
#include "core/check.h"

namespace stof::codegen {
namespace {

const char* name_of(RowPrologue prologue) {
  switch (prologue) {
    case RowPrologue::kLayerNorm:
      return "layer_norm_";
    case RowPrologue::kRmsNorm:
      return "rms_norm_";
    case RowPrologue::kNone:
      break;
  }
  return "";
}

}  // namespace

bool SkinnyGemmConfig::has(GemmStep step) const {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

int SkinnyGemmConfig::shared_bytes() const {
  const int chunk = 32 * unroll;
  const int chunks = static_cast<int>(ceil_div(ceil_div(in, chunk), splits));
  const bool norm = prologue != RowPrologue::kNone;
  const int vectors = norm ? (prologue == RowPrologue::kLayerNorm ? 2 : 1) : 0;
  const int vector_bytes = chunk * chunks * (gamma == DType::kFloat32 ? 4 : 2);
  return tile_m * (2 * chunk * chunks + 64) + 4 * warps_k * tile_m * (tile_n() + 4) + 16 +
         vectors * vector_bytes + (norm ? 8 * warps_n * warps_k : 0) +
         (rope_dim > 0 ? 4 * tile_m + 2 * rope_dim : 0) +
         (has(GemmStep::kCacheStore) ? 4 * tile_m : 0);
}

std::string SkinnyGemmConfig::shape() const {
  std::string text = fmt::format("{}w{}x{}u{}", tile_m, warps_n, warps_k, unroll);
  if (splits > 1) text += fmt::format("k{}", splits);
  if (blocks_per_sm > 1) text += fmt::format("b{}", blocks_per_sm);
  return text;
}

std::string SkinnyGemmConfig::name() const {
  std::string text =
      fmt::format("gemm_skinny_{}_{}_{}of{}", element == DType::kBFloat16 ? "bf16" : "fp16",
                  shape(), name_of(prologue), in);
  for (const GemmStep step : steps) {
    text += fmt::format("_{}", to_string(step));
    if (step == GemmStep::kRope) text += std::to_string(rope_dim);
  }
  if (has(GemmStep::kBias) && bias != DType::kFloat32) text += "_bias16";
  if (prologue != RowPrologue::kNone && gamma != DType::kFloat32) text += "_gamma16";
  return text;
}

std::string SkinnyGemmConfig::problem() const {
  if (element != DType::kFloat16 && element != DType::kBFloat16)
    return fmt::format("element: expected float16 or bfloat16, got {}", stof::to_string(element));
  for (const auto& [vector, dtype] : {std::pair{"bias", bias}, {"gamma", gamma}})
    if (dtype != DType::kFloat32 && dtype != element)
      return fmt::format("{}: expected float32 or {}, got {}", vector, stof::to_string(element),
                         stof::to_string(dtype));
  if (std::string text = problem_of(steps); !text.empty()) return text;
  constexpr GemmStep kSteps[] = {GemmStep::kBias,     GemmStep::kRelu, GemmStep::kGeluErf,
                                 GemmStep::kGeluTanh, GemmStep::kSilu, GemmStep::kGate,
                                 GemmStep::kResidual, GemmStep::kRope, GemmStep::kCacheStore};
  for (const GemmStep step : steps)
    if (std::find(std::begin(kSteps), std::end(kSteps), step) == std::end(kSteps))
      return fmt::format("steps: these kernels have no {}", to_string(step));
  if (tile_m != 8 && tile_m != 16 && tile_m != 32 && tile_m != 64)
    return fmt::format("tile_m: expected 8, 16, 32 or 64, got {}", tile_m);
  if (warps_n < 1 || warps_k < 1 || warps_n * warps_k > 16)
    return fmt::format("warps: expected 1 to 16, got {} x {}", warps_n, warps_k);
  if (has(GemmStep::kGate) && warps_n % 2 != 0)
    return fmt::format("warps_n: expected an even number with a gate, got {}", warps_n);
  if (has(GemmStep::kRope) ? rope_dim < 16 || rope_dim % 16 != 0 : rope_dim != 0)
    return fmt::format("rope_dim: expected {}, got {}",
                       has(GemmStep::kRope) ? "a multiple of 16" : "0 without a rotation",
                       rope_dim);
  if (unroll != 2 && unroll != 4) return fmt::format("unroll: expected 2 or 4, got {}", unroll);
  if (splits != 1 && splits != 2 && splits != 4 && splits != 8)
    return fmt::format("splits: expected 1, 2, 4 or 8 that share a sum, got {}", splits);
  if (blocks_per_sm < 1 || blocks_per_sm * threads() > 1024)
    return fmt::format("blocks_per_sm: expected at most 1024 threads, got {} of {}", blocks_per_sm,
                       threads());
  constexpr int kMost = 1 << 16;
  if (in < 8 || in % 8 != 0 || in > kMost)
    return fmt::format("in: expected a multiple of 8 up to {}, got {}", kMost, in);
  if (ceil_div(in, 32 * unroll) < splits)
    return fmt::format("splits: {} blocks share {} chunks of K", splits, ceil_div(in, 32 * unroll));
  return "";
}

void SkinnyGemmConfig::validate() const {
  const std::string text = problem();
  STOF_CHECK(text.empty(), kInternal, "{}: {}", name(), text);
}

std::string emit_gemm(const SkinnyGemmConfig& config) {
  config.validate();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return emit_head(config.name(), "", "gemm/skinny/kernel.cuh", config.steps) +
         fmt::format(
             R"(struct Config {{
  using Element = ptx::{element};
  static constexpr int kTileM = {m}, kWarpsN = {warps_n}, kWarpsK = {warps_k}, kIn = {in}, kSplits = {splits}, kUnroll = {unroll};
  static constexpr bool kGate = {gate}, kBias = {bias}, kFloatBias = {floatbias}, kFloatGamma = {floatgamma}, kResidual = {residual};
  static constexpr bool kNorm = {norm}, kCenter = {center}, kCache = {cache};
  static constexpr int kRopeDim = {rope};
}};
static_assert(SkinnyGemmSizes<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
static_assert(SkinnyGemmSizes<Config>::kThreads == {threads}, "host and device disagree on threads");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
gemm(const __grid_constant__ stof::SkinnyGemmParams params) {{
  stof::skinny_gemm<stof::Config>(params);
}}
)",
             fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
             fmt::arg("m", config.tile_m), fmt::arg("warps_n", config.warps_n),
             fmt::arg("warps_k", config.warps_k), fmt::arg("in", config.in),
             fmt::arg("splits", config.splits), fmt::arg("unroll", config.unroll),
             fmt::arg("gate", flag(config.has(GemmStep::kGate))),
             fmt::arg("bias", flag(config.has(GemmStep::kBias))),
             fmt::arg("floatbias", flag(config.bias == DType::kFloat32)),
             fmt::arg("floatgamma", flag(config.gamma == DType::kFloat32)),
             fmt::arg("residual", flag(config.has(GemmStep::kResidual))),
             fmt::arg("norm", flag(config.prologue != RowPrologue::kNone)),
             fmt::arg("center", flag(config.prologue == RowPrologue::kLayerNorm)),
             fmt::arg("cache", flag(config.has(GemmStep::kCacheStore))),
             fmt::arg("rope", config.rope_dim), fmt::arg("shared", config.shared_bytes()),
             fmt::arg("threads", config.threads()), fmt::arg("blocks", config.blocks_per_sm));
}

}  // namespace stof::codegen
