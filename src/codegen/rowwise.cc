#include "codegen/rowwise.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/check.h"

namespace stof::codegen {
namespace {

/// row_pitch() of kernels/attention/warp_rows.cuh.
int pitch(int head_dim) { return 16 * (2 * ((head_dim + 15) / 16) + 1); }

}  // namespace

int RowwiseConfig::shared_bytes() const {
  const int stage = kChunkKeys * (pitch(head_dim_qk) + pitch(head_dim_v)) + 2 * kRows;
  const int merge = warps * kRows * (4 * (head_dim_v + 4) + 8);
  return kRows * pitch(head_dim_qk) + std::max(warps * stages * stage, merge);
}

std::string RowwiseConfig::name() const {
  return fmt::format("rowwise_{}_qk{}_v{}_w{}_s{}_b{}{}{}",
                     element == DType::kBFloat16 ? "bf16" : "fp16", head_dim_qk, head_dim_v, warps,
                     stages, blocks_per_sm, softcap ? "_softcap" : "",
                     early_start ? "" : "_serial");
}

void RowwiseConfig::validate() const {
  STOF_CHECK(element == DType::kBFloat16 || element == DType::kFloat16, kInternal,
             "element: expected bfloat16 or float16, got {}", to_string(element));
  for (const int head_dim : {head_dim_qk, head_dim_v})
    STOF_CHECK(head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0, kInternal,
               "head dimension: expected a multiple of 8 from 8 to 256, got {}", head_dim);
  STOF_CHECK(warps >= 1 && warps <= 8, kInternal, "warps: expected 1..8, got {}", warps);
  STOF_CHECK(stages >= 2 && stages <= 32, kInternal, "stages: expected 2..32, got {}", stages);
}

std::string emit_rowwise(const RowwiseConfig& config) {
  config.validate();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return fmt::format(
      R"(// {name}
#include "attention/rowwise/kernel.cuh"
namespace stof::rowwise {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kHeadDimQk = {qk}, kHeadDimV = {v}, kWarps = {warps}, kStages = {stages};
  static constexpr bool kSoftcap = {softcap}, kEarlyStart = {early};
}};
static_assert(Derived<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
rowwise(const __grid_constant__ stof::rowwise::RowwiseParams params) {{
  stof::rowwise::rowwise_kernel<stof::rowwise::Derived<stof::rowwise::Config>>(params);
}}
)",
      fmt::arg("name", config.name()),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("qk", config.head_dim_qk), fmt::arg("v", config.head_dim_v),
      fmt::arg("warps", config.warps), fmt::arg("stages", config.stages),
      fmt::arg("softcap", flag(config.softcap)), fmt::arg("early", flag(config.early_start)),
      fmt::arg("shared", config.shared_bytes()), fmt::arg("threads", config.threads()),
      fmt::arg("blocks", config.blocks_per_sm));
}

}  // namespace stof::codegen
