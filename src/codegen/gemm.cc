#include "codegen/gemm.h"

#include <fmt/core.h>

#include <algorithm>

#include "codegen/wgmma.h"
#include "core/check.h"

namespace stof::codegen {
namespace {

constexpr int kSharedLimit = 232448;  // dynamic bytes a block may ask for on sm_90 (227 KiB)
constexpr int kSharedPerSm = 233472;  // of which a block takes 1 KiB for itself
constexpr int kGroupRegisters = 232, kProducerRegisters = 40;  // of 3 x 168 at launch

bool is_activation(GemmStep step) {
  return step == GemmStep::kRelu || step == GemmStep::kGeluErf || step == GemmStep::kGeluTanh ||
         step == GemmStep::kSilu;
}

const char* function_of(GemmStep step) {
  switch (step) {
    case GemmStep::kRelu:
      return "relu(x)";
    case GemmStep::kGeluErf:
      return "gelu_erf(x)";
    case GemmStep::kGeluTanh:
      return "gelu_tanh(x)";
    case GemmStep::kSilu:
      return "silu(x)";
    default:
      return "x";
  }
}

}  // namespace

std::string emit_steps(const std::vector<GemmStep>& steps) {
  std::string text, values = "values";
  const bool rotates = std::find(steps.begin(), steps.end(), GemmStep::kRope) != steps.end();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool gated = i + 1 < steps.size() && steps[i + 1] == GemmStep::kGate;
    const auto call = [&](const char* member) {
      text += fmt::format("    epilogue.{}({});\n", member, values);
    };
    switch (steps[i]) {
      case GemmStep::kBias:
        // With a rotation, which takes whole heads, it comes before that, as the scale does.
        if (!rotates) call("add_bias");
        break;
      case GemmStep::kRelu:
      case GemmStep::kGeluErf:
      case GemmStep::kGeluTanh:
      case GemmStep::kSilu:
        if (!gated)
          text += fmt::format("    epilogue.activate({}, [](float x) {{ return {}; }});\n", values,
                              function_of(steps[i]));
        break;
      case GemmStep::kGate:
        text += fmt::format(
            "    float gated[kCount / 2];\n    epilogue.gate({}, gated, [](float x) {{ return {}; "
            "}});\n",
            values, i > 0 ? function_of(steps[i - 1]) : "x");
        values = "gated";
        break;
      case GemmStep::kResidual:
        call("add_residual");
        break;
      case GemmStep::kRowScale:
        call("scale_rows");
        break;
      case GemmStep::kRowStatistics:
        call("count");
        break;
      case GemmStep::kRmsScale:
        if (!rotates) call("scale_rows");
        break;
      case GemmStep::kRowSquares:
        call("store_squares");
        break;
      case GemmStep::kLayerNorm:
      case GemmStep::kRmsNorm:
        return text;  // once the row is known
      case GemmStep::kRope:
        call("rotated");
        break;
      case GemmStep::kHeadStore:  // the addresses of store()
      case GemmStep::kCacheStore:
        break;
    }
  }
  return text + fmt::format("    epilogue.store({});\n", values);
}

std::string_view to_string(GemmStep step) {
  constexpr std::string_view kNames[] = {
      "bias",       "relu",      "gelu_erf",       "gelu_tanh",  "silu",     "gate",
      "residual",   "row_scale", "row_statistics", "layer_norm", "rms_norm", "rope",
      "head_store", "rms_scale", "row_squares",    "cache_store"};
  return kNames[static_cast<std::size_t>(step)];
}

bool GemmConfig::has(GemmStep step) const {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool GemmConfig::has_norm() const { return has(GemmStep::kLayerNorm) || has(GemmStep::kRmsNorm); }

int GemmConfig::groups() const { return schedule == GemmSchedule::kSingle ? 1 : 2; }

int GemmConfig::slabs() const {
  return tile_m / 64 / (schedule == GemmSchedule::kCooperative ? groups() : 1);
}

bool GemmConfig::large() const {
  return schedule == GemmSchedule::kPingPong || schedule == GemmSchedule::kCooperative;
}

int GemmConfig::threads() const { return large() ? 128 * (groups() + 1) : 128 * groups() + 32; }

int GemmConfig::chunk() const {
  const int out = out_n();
  // 192 accumulators leave no room for the residual of 64 columns, nor do a norm's sums.
  const bool narrow = has(GemmStep::kResidual) && (slabs() * tile_n / 2 > 128 || has_norm());
  for (const int width : {64, 32, 48, 16})
    if (out % width == 0 && store_dim % width == 0 && !(narrow && width == 64)) return width;
  return 16;
}

int GemmConfig::ring() const {
  const int chunks = slabs() * (out_n() / chunk());
  const int most = tile_m * tile_n > 128 * 192 ? 2 : 3;  // 128 x 256 with 4 stages has no room
  for (int buffers = most; buffers > 1; --buffers)
    if (chunks % buffers == 0) return buffers;
  return 1;
}

int GemmConfig::partners() const {
  return cluster_k * (schedule == GemmSchedule::kSplit ? groups() : 1);
}

int GemmConfig::shared_bytes() const {
  const int warps = 4 * groups();
  const int operands = stages * 128 * (tile_m + tile_n);
  const int staging = warps * ring() * 16 * chunk() * 2;
  const int own_warps = 4 / partners() * (schedule == GemmSchedule::kSplit ? groups() : 1);
  const int receive = (partners() - 1) * own_warps * 16 * tile_n * 4;
  const auto width_of = [](DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; };
  const int column_bytes = has(GemmStep::kBias) * width_of(bias) +
                           (has_norm() + has(GemmStep::kLayerNorm)) * width_of(gamma);
  const int slots = has_norm() ? 1 : 2;
  const int vector_bytes = slots * tile_n * column_bytes;
  const int hear = warps * 2 * (cluster_n - 1) * 128 * slabs();
  const int barriers = 2 * stages + 2 * slots + (has(GemmStep::kResidual) ? warps * ring() : 0) +
                       (cluster_k > 1 ? warps : 0) + (cluster_n > 1 ? 2 * warps : 0);
  return operands + staging + receive + hear + vector_bytes + 8 * barriers;
}

std::string GemmConfig::shape() const {
  std::string text =
      fmt::format("{}{}x{}s{}", "pcsw"[static_cast<int>(schedule)], tile_m, tile_n, stages);
  if (cluster_k > 1) text += fmt::format("k{}", cluster_k);
  if (cluster_n > 1) text += fmt::format("n{}", cluster_n);
  if (blocks_per_sm > 1) text += fmt::format("b{}", blocks_per_sm);
  return text;
}

std::string GemmConfig::name() const {
  std::string text =
      fmt::format("gemm_sm90_{}_{}", element == DType::kBFloat16 ? "bf16" : "fp16", shape());
  for (const GemmStep step : steps) {
    text += fmt::format("_{}", to_string(step));
    const bool norm = step == GemmStep::kLayerNorm || step == GemmStep::kRmsNorm;
    if ((step == GemmStep::kBias && bias != DType::kFloat32) || (norm && gamma != DType::kFloat32))
      text += "16";
    if (step == GemmStep::kRope) text += std::to_string(rope_dim);
    if (step == GemmStep::kHeadStore) text += std::to_string(store_dim);
  }
  return text;
}

std::string problem_of(const std::vector<GemmStep>& steps) {
  bool gated = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const GemmStep step = steps[i];
    const auto times = std::count(steps.begin(), steps.end(), step);
    if (!is_activation(step) && times > 1)
      return fmt::format("steps: expected {} once, got it {} times", to_string(step), times);
    if (step == GemmStep::kBias && gated)
      return "steps: expected the bias before the gate, whose columns it has";
    const bool norm = step == GemmStep::kLayerNorm || step == GemmStep::kRmsNorm;
    if (norm && i + 1 != steps.size())
      return fmt::format("steps: expected {} last", to_string(step));
    if (norm && gated) return "steps: expected no norm behind a gate";
    const bool stored = i + 2 == steps.size() && (steps[i + 1] == GemmStep::kHeadStore ||
                                                  steps[i + 1] == GemmStep::kCacheStore);
    const bool simple = std::all_of(
        steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i),
        [](GemmStep before) { return before == GemmStep::kBias || before == GemmStep::kRmsScale; });
    if (step == GemmStep::kRope && ((i + 1 != steps.size() && !stored) || !simple))
      return "steps: expected rope last, behind nothing but rms_scale and the bias";
    if (step == GemmStep::kRmsScale && i != 0) return "steps: expected rms_scale first";
    if (step == GemmStep::kRmsScale &&
        std::find(steps.begin(), steps.end(), GemmStep::kRowScale) != steps.end())
      return "steps: expected row_scale or rms_scale, got both";
    if (step == GemmStep::kRowSquares && (i + 1 != steps.size() || gated))
      return "steps: expected row_squares last, and no gate";
    const bool places = step == GemmStep::kHeadStore || step == GemmStep::kCacheStore;
    if (places && (i + 1 != steps.size() || gated))
      return fmt::format("steps: expected {} last, and no gate", to_string(step));
    if (step == GemmStep::kRowStatistics && i + 1 != steps.size())
      return "steps: expected row_statistics last, of what is stored";
    gated |= step == GemmStep::kGate;
  }
  return "";
}

std::string GemmConfig::problem() const {
  if (element != DType::kFloat16 && element != DType::kBFloat16)
    return fmt::format("element: expected float16 or bfloat16, got {}", stof::to_string(element));
  if (bias != DType::kFloat32 && bias != element)
    return fmt::format("bias: expected float32 or {}, got {}", stof::to_string(element),
                       stof::to_string(bias));
  if (gamma != DType::kFloat32 && gamma != element)
    return fmt::format("gamma: expected float32 or {}, got {}", stof::to_string(element),
                       stof::to_string(gamma));
  if (std::string text = problem_of(steps); !text.empty()) return text;
  if (has(GemmStep::kCacheStore)) return "steps: these kernels have no cache_store";
  const bool heads_fit = rope_dim >= 16 && rope_dim % 16 == 0 && tile_n % rope_dim == 0;
  if (has(GemmStep::kRope) ? !heads_fit : rope_dim != 0)
    return fmt::format("rope_dim: expected {}, got {} with tiles of {} columns",
                       has(GemmStep::kRope) ? "a multiple of 16 that a tile is whole heads of"
                                            : "0 without a rotation",
                       rope_dim, tile_n);
  if (has(GemmStep::kHeadStore) ? store_dim < 16 || store_dim % 16 != 0 : store_dim != 0)
    return fmt::format("store_dim: expected {}, got {}",
                       has(GemmStep::kHeadStore) ? "a multiple of 16" : "0 without head_store",
                       store_dim);
  constexpr int kMostShared = 64;
  if (has(GemmStep::kRope) && schedule == GemmSchedule::kSplit && tile_n > kMostShared)
    return fmt::format("tile_n: split and rotated, registers take {} columns, got {}", kMostShared,
                       tile_n);
  if (has(GemmStep::kRowSquares) && tile_n % 32 != 0)
    return fmt::format("tile_n: expected whole sums of 32 columns with row_squares, got {}",
                       tile_n);
  if (has(GemmStep::kRmsScale) && has_norm()) return "steps: expected no norm behind rms_scale";
  const int rows = schedule == GemmSchedule::kCooperative ? 128 : 64;
  if (tile_m != rows && !(large() && tile_m == 2 * rows))
    return fmt::format("tile_m: expected {}{}, got {}", rows,
                       large() ? fmt::format(" or {}", 2 * rows) : "", tile_m);
  if (tile_n < 16 || tile_n > 256 || tile_n % 16 != 0 || (has(GemmStep::kGate) && tile_n % 32 != 0))
    return fmt::format("tile_n: expected a multiple of {} up to 256, got {}",
                       has(GemmStep::kGate) ? 32 : 16, tile_n);
  const int most = large() ? (has_norm() ? 128 : 192) : 64;  // a norm's sums need registers, too
  if (slabs() * tile_n / 2 > most)
    return fmt::format("tile: {} accumulators a thread are more than {}", slabs() * tile_n / 2,
                       most);
  if (partners() != 1 && partners() != 2 && partners() != 4)
    return fmt::format("cluster_k: expected 1, 2 or 4 that share a sum, got {}", partners());
  if (partners() > 1 && large()) return "cluster_k: large tiles share no sums";
  if (has_norm() && schedule == GemmSchedule::kPingPong)
    return "schedule: ping-pong normalises no rows";
  if (has_norm() && partners() > 1) return "cluster_k: rows that are normalised share no sums";
  const bool power = cluster_n == 1 || cluster_n == 2 || cluster_n == 4 || cluster_n == 8;
  if (!power || cluster_n > (has_norm() ? 8 : 1))
    return fmt::format("cluster_n: expected 1{}, got {}", has_norm() ? ", 2, 4 or 8" : "",
                       cluster_n);
  if (stages < 2) return fmt::format("stages: expected 2 or more, got {}", stages);
  if (blocks_per_sm < 1 || (blocks_per_sm > 1 && large()))
    return fmt::format("blocks_per_sm: expected 1, got {}", blocks_per_sm);
  const int limit = std::min(kSharedLimit, kSharedPerSm / blocks_per_sm - 1024);
  if (shared_bytes() > limit)
    return fmt::format("shared memory: needs {} bytes, a block has {}", shared_bytes(), limit);
  return "";
}

void GemmConfig::validate() const {
  const std::string text = problem();
  STOF_CHECK(text.empty(), kInternal, "{}: {}", name(), text);
}

std::string emit_head(const std::string& name, const std::string& declarations, const char* kernel,
                      const std::vector<GemmStep>& steps) {
  return fmt::format(
      R"(// {}
#include "ptx/types.cuh"
namespace stof {{
{}struct Steps {{
  template <class Epilogue, int kCount>
  static __device__ __forceinline__ void apply(Epilogue& epilogue, float (&values)[kCount]);
}};
}}
#include "{}"
namespace stof {{
template <class Epilogue, int kCount>
__device__ __forceinline__ void Steps::apply(Epilogue& epilogue, float (&values)[kCount]) {{
{}}}
)",
      name, declarations, kernel, emit_steps(steps));
}

std::string emit_gemm(const GemmConfig& config) {
  config.validate();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string text = emit_head(config.name(), emit_wgmma_product(config.element, config.tile_n),
                               "gemm/sm90/kernel.cuh", config.steps);
  text += fmt::format(
      R"(struct Config {{
  using Element = ptx::{element};
  static constexpr int kTileN = {n}, kStages = {stages}, kGroups = {groups}, kSlabs = {slabs}, kClusterK = {cluster}, kClusterN = {cluster_n};
  static constexpr bool kPingPong = {pingpong}, kSplitGroups = {split}, kLarge = {large};
  static constexpr int kGroupRegisters = {greg}, kProducerRegisters = {preg};
  static constexpr int kChunk = {chunk}, kRing = {ring};
  static constexpr bool kGate = {gate}, kBias = {bias}, kFloatBias = {floatbias}, kResidual = {residual};
  static constexpr bool kRowScale = {scale}, kStatistics = {statistics}, kNorm = {norm}, kFloatNorm = {floatnorm}, kCenter = {center};
  static constexpr bool kRmsScale = {rmsscale};
  static constexpr int kRopeDim = {rope}, kStoreDim = {store};
}};
static_assert(GemmSizes<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
static_assert(GemmSizes<Config>::kThreads == {threads}, "host and device disagree on threads");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks}) {clusters}
gemm(const __grid_constant__ stof::GemmParams params, const __grid_constant__ stof::ptx::TensorMap x,
     const __grid_constant__ stof::ptx::TensorMap w, const __grid_constant__ stof::ptx::TensorMap y,
     const __grid_constant__ stof::ptx::TensorMap residual) {{
  stof::sm90_gemm<stof::Config>(params, stof::GemmMaps{{&x, &w, &y, &residual}});
}}
)",
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("n", config.tile_n), fmt::arg("stages", config.stages),
      fmt::arg("groups", config.groups()), fmt::arg("slabs", config.slabs()),
      fmt::arg("cluster", config.cluster_k), fmt::arg("cluster_n", config.cluster_n),
      fmt::arg("norm", flag(config.has_norm())),
      fmt::arg("center", flag(config.has(GemmStep::kLayerNorm))),
      fmt::arg("pingpong", flag(config.schedule == GemmSchedule::kPingPong)),
      fmt::arg("split", flag(config.schedule == GemmSchedule::kSplit)),
      fmt::arg("large", flag(config.large())), fmt::arg("greg", kGroupRegisters),
      fmt::arg("preg", kProducerRegisters), fmt::arg("chunk", config.chunk()),
      fmt::arg("ring", config.ring()), fmt::arg("gate", flag(config.has(GemmStep::kGate))),
      fmt::arg("bias", flag(config.has(GemmStep::kBias))),
      fmt::arg("floatbias", flag(config.bias == DType::kFloat32)),
      fmt::arg("floatnorm", flag(config.gamma == DType::kFloat32)),
      fmt::arg("rope", config.rope_dim), fmt::arg("store", config.store_dim),
      fmt::arg("residual", flag(config.has(GemmStep::kResidual))),
      fmt::arg("scale", flag(config.has(GemmStep::kRowScale))),
      fmt::arg("rmsscale", flag(config.has(GemmStep::kRmsScale))),
      fmt::arg("statistics", flag(config.has(GemmStep::kRowStatistics))),
      fmt::arg("shared", config.shared_bytes()), fmt::arg("threads", config.threads()),
      fmt::arg("blocks", config.blocks_per_sm),
      fmt::arg("clusters", config.cluster_blocks() > 1
                               ? fmt::format("__cluster_dims__({}, 1, 1)", config.cluster_blocks())
                               : ""));
  return text;
}

}  // namespace stof::codegen
