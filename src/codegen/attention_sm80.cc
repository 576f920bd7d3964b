#include "codegen/attention_sm80.h"

#include <fmt/core.h>

#include "core/check.h"

namespace stof::codegen {
namespace {

constexpr int kStreamBytes = 480;  // kernels/attention/sm80_blockwise/stream.cuh

int chunks(int columns) { return (columns + 63) / 64; }

/// Output columns a warpgroup computes; with split columns half of them, in whole chunks.
int out_columns(const AttentionConfig& config) {
  return config.split_columns ? 64 * chunks((config.head_dim_v + 1) / 2) : config.head_dim_v;
}

}  // namespace

int sm80_shared_bytes(const AttentionConfig& config) {
  const int query = config.slabs() * 64 * 128 * chunks(config.head_dim_qk);
  const int value_chunks = chunks(out_columns(config) * (config.split_columns ? 2 : 1));
  const int stage = config.tile_kv * 128 * (chunks(config.head_dim_qk) + value_chunks);
  return query + config.stages * stage + kStreamBytes;
}

std::string sm80_name(const AttentionConfig& config) {
  std::string text = fmt::format(
      "sm80_{}_qk{}_v{}_w{}x{}_kv{}_s{}_b{}", config.element == DType::kBFloat16 ? "bf16" : "fp16",
      config.head_dim_qk, config.head_dim_v, config.warpgroups, config.warp_slabs, config.tile_kv,
      config.stages, config.blocks_per_sm);
  if (config.load_bytes != 16) text += fmt::format("_ld{}", config.load_bytes);
  for (const auto& [flag, suffix] : {std::pair{config.split_columns, "_split"},
                                     {config.query_in_registers, "_qreg"},
                                     {config.pack_heads, "_packed"},
                                     {config.two_of_four, "_2of4"},
                                     {config.softcap, "_softcap"},
                                     {config.alibi, "_alibi"},
                                     {config.bias, "_bias"},
                                     {config.position_bias, "_position"},
                                     {config.sink, "_sink"},
                                     {config.varlen, "_varlen"},
                                     {config.merge, "_merge"}})
    if (flag) text += suffix;
  return config.score_mod ? text + "_mod" + config.score_mod->tag : text;
}

void validate_sm80(const AttentionConfig& config) {
  for (const int head_dim : {config.head_dim_qk, config.head_dim_v})
    STOF_CHECK(head_dim >= 8 && head_dim <= 512 && head_dim % 8 == 0, kInternal,
               "head dimension: expected a multiple of 8 from 8 to 512, got {}", head_dim);
  STOF_CHECK(config.warpgroups >= 1 && config.warpgroups <= 2, kInternal,
             "warpgroups: expected 1..2, got {}", config.warpgroups);
  STOF_CHECK(config.warp_slabs >= 1 && config.warp_slabs <= 2, kInternal,
             "warp_slabs: expected 1..2, got {}", config.warp_slabs);
  STOF_CHECK(config.tile_kv >= 16 && config.tile_kv <= 128 && config.tile_kv % 16 == 0, kInternal,
             "tile_kv: expected a multiple of 16 up to 128, got {}", config.tile_kv);
  STOF_CHECK(config.stages >= 1 && config.stages <= 3, kInternal, "stages: expected 1..3, got {}",
             config.stages);
  STOF_CHECK(config.load_bytes == 16 || config.load_bytes == 4 || config.load_bytes == 2, kInternal,
             "load_bytes: expected 16, 4 or 2, got {}", config.load_bytes);
  STOF_CHECK(!config.split_columns || config.warpgroups == 2, kInternal,
             "split_columns: needs two warpgroups, got {}", config.warpgroups);
  STOF_CHECK(!(config.split_columns && config.merge), kInternal,
             "split_columns: a merging pass reads the LSE that the other warpgroup writes");
  STOF_CHECK(!config.two_of_four || config.tile_kv % 32 == 0, kInternal,
             "tile_kv: 2:4 sparse products need a multiple of 32, got {}", config.tile_kv);
  STOF_CHECK(!config.two_of_four || config.head_dim_qk <= 256, kInternal,
             "head_dim_qk: expected up to 256 with two_of_four, got {}", config.head_dim_qk);
  STOF_CHECK(!config.two_of_four || !(config.softcap || config.needs_keys()), kInternal,
             "two_of_four: the choice is by q k^T alone, without softcap, biases or score_mod");
  STOF_CHECK(out_columns(config) <= 256, kInternal,
             "head_dim_v: expected 256 columns a warpgroup at most, got {}", out_columns(config));
}

std::string emit_sm80(const AttentionConfig& config) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return fmt::format(
      R"(// {name}
#include "attention/sm80_blockwise/kernel.cuh"
{function}namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kHeadDimQk = {qk}, kHeadDimV = {v};
  static constexpr int kWarpSlabs = {slabs}, kRowGroups = {rows}, kColumnGroups = {columns};
  static constexpr int kTileKv = {kv}, kStages = {stages}, kLoadBytes = {load};
  static constexpr bool kQueryInRegisters = {qreg}, kPackHeads = {pack}, kTwoOfFour = {sparse}, kMerge = {merge}, kVarlen = {varlen};
  static constexpr bool kGridOrder = false;
  static constexpr bool kSoftcap = {softcap}, kAlibi = {alibi}, kBias = {bias}, kPositionBias = {position}, kSink = {sink};
  {score_mod}
}};
static_assert(MmaDerived<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
static_assert(MmaDerived<Config>::kPayloadBytes == {payload}, "host and device disagree on payloads");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
attention(const __grid_constant__ {params} params, const __grid_constant__ stof::Operands operands) {{
  stof::sm80_blockwise<stof::Config>(params, operands);
}}
)",
      fmt::arg("name", config.name()),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("qk", config.head_dim_qk), fmt::arg("v", config.head_dim_v),
      fmt::arg("slabs", config.warp_slabs),
      fmt::arg("rows", config.split_columns ? 1 : config.warpgroups),
      fmt::arg("columns", config.split_columns ? 2 : 1), fmt::arg("kv", config.tile_kv),
      fmt::arg("stages", config.stages), fmt::arg("load", config.load_bytes),
      fmt::arg("qreg", flag(config.query_in_registers)), fmt::arg("pack", flag(config.pack_heads)),
      fmt::arg("softcap", flag(config.softcap)), fmt::arg("alibi", flag(config.alibi)),
      fmt::arg("bias", flag(config.bias)), fmt::arg("position", flag(config.position_bias)),
      fmt::arg("sparse", flag(config.two_of_four)),
      fmt::arg("function", config.score_mod ? config.score_mod->text : ""),
      fmt::arg("score_mod", score_mod_members(config.score_mod.get())),
      fmt::arg("params", params_type(config.score_mod.get())), fmt::arg("sink", flag(config.sink)),
      fmt::arg("varlen", flag(config.varlen)), fmt::arg("merge", flag(config.merge)),
      fmt::arg("shared", config.shared_bytes()), fmt::arg("payload", config.payload_bytes()),
      fmt::arg("threads", config.threads()), fmt::arg("blocks", config.blocks_per_sm));
}

}  // namespace stof::codegen
