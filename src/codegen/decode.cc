#include "codegen/decode.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/check.h"

namespace stof::codegen {
namespace {

/// Bytes from one row to the next in shared memory: whole steps of 16 columns and 16 bytes more.
int pitch(int head_dim) { return 16 * (2 * ((head_dim + 15) / 16) + 1); }

/// `Config` and the header it needs.
std::string emit_config(const DecodeConfig& config, const char* kernel) {
  config.validate();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return fmt::format(
      R"(// {name}
#include "attention/decode/{kernel}.cuh"
namespace stof::decode {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kHeadDimQk = {qk}, kHeadDimV = {v};
  static constexpr int kRowWarps = {row_warps}, kRowTiles = {row_tiles}, kKeyWarps = {key_warps};
  static constexpr int kTileKeys = {tile}, kStages = {stages}, kPageSize = {page};
  static constexpr bool kLists = {lists}, kSoftcap = {softcap}, kAlibi = {alibi}, kPositionBias = {position}, kEarlyStart = {early}, kMerges = {merges}, kEarlyKeys = {early_keys};
}};
static_assert(Derived<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
}}
)",
      fmt::arg("name", config.name()), fmt::arg("kernel", kernel),
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("qk", config.head_dim_qk), fmt::arg("v", config.head_dim_v),
      fmt::arg("row_warps", config.row_warps), fmt::arg("row_tiles", config.row_tiles),
      fmt::arg("key_warps", config.key_warps), fmt::arg("tile", config.tile_keys),
      fmt::arg("stages", config.stages), fmt::arg("page", config.page_size),
      fmt::arg("lists", flag(config.lists)), fmt::arg("softcap", flag(config.softcap)),
      fmt::arg("alibi", flag(config.alibi)), fmt::arg("position", flag(config.position_bias)),
      fmt::arg("early", flag(config.early_start)), fmt::arg("early_keys", flag(config.early_keys)),
      fmt::arg("merges", flag(config.merges)), fmt::arg("shared", config.shared_bytes()));
}

}  // namespace

int DecodeConfig::stage_bytes() const {
  return tile_keys * (pitch(head_dim_qk) + pitch(head_dim_v)) +
         (lists ? key_warps * rows() * 8 : 0);
}

int DecodeConfig::query_bytes() const { return rows() * pitch(head_dim_qk); }

int DecodeConfig::merge_bytes() const { return key_warps * rows() * (4 * (head_dim_v + 4) + 8); }

int DecodeConfig::shared_bytes() const {
  return query_bytes() + std::max(stages * stage_bytes(), merge_bytes());
}

int DecodeConfig::combine_shared_bytes() const {
  const int outputs = kDecodeCombineThreads * 16 * ((head_dim_v + 127) / 128);
  return outputs + 4 * (kDecodeMaxBlocks + 4);
}

std::string DecodeConfig::name() const {
  return fmt::format("decode_{}_qk{}_v{}_r{}x{}_k{}x{}_s{}_b{}{}{}{}{}{}{}{}{}",
                     element == DType::kBFloat16 ? "bf16" : "fp16", head_dim_qk, head_dim_v,
                     row_warps, row_tiles, key_warps, tile_keys, stages, blocks_per_sm,
                     page_size > 0 ? fmt::format("_page{}", page_size) : "", lists ? "_lists" : "",
                     softcap ? "_softcap" : "", alibi ? "_alibi" : "",
                     position_bias ? "_position" : "", early_start ? "" : "_serial",
                     early_keys ? "_early" : "", merges ? "_merges" : "");
}

void DecodeConfig::validate() const {
  STOF_CHECK(element == DType::kBFloat16 || element == DType::kFloat16, kInternal,
             "element: expected bfloat16 or float16, got {}", to_string(element));
  for (const int head_dim : {head_dim_qk, head_dim_v})
    STOF_CHECK(head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0, kInternal,
               "head dimension: expected a multiple of 8 from 8 to 256, got {}", head_dim);
  STOF_CHECK(row_warps >= 1 && row_tiles >= 1 && key_warps >= 1 && threads() <= 1024, kInternal,
             "warps: expected 1 and more, at most 32 in all, got {} x {}", row_warps, key_warps);
  STOF_CHECK(tile_keys <= 64 && tile_keys % (16 * key_warps) == 0, kInternal,
             "tile_keys: expected a multiple of {} up to 64, got {}", 16 * key_warps, tile_keys);
  STOF_CHECK(stages >= 2, kInternal, "stages: expected 2 and more, got {}", stages);
  STOF_CHECK(!early_keys || (early_start && !lists), kInternal,
             "early_keys: expected with early_start, without lists");
  STOF_CHECK(page_size >= 0 && page_size % 16 == 0, kInternal,
             "page_size: expected a multiple of 16, got {}", page_size);
}

std::string emit_decode(const DecodeConfig& config) {
  return emit_config(config, "kernel") +
         fmt::format(R"(extern "C" __global__ void __launch_bounds__({}, {})
decode(const __grid_constant__ stof::decode::DecodeParams params) {{
  stof::decode::decode_kernel<stof::decode::Derived<stof::decode::Config>>(params);
}}
)",
                     config.threads(), config.blocks_per_sm);
}

std::string emit_decode_combine(const DecodeConfig& config) {
  return emit_config(config, "combine") +
         fmt::format(R"(static_assert(stof::decode::kCombineThreads == {threads} &&
              stof::decode::kMaxBlocks == {blocks} &&
              sizeof(stof::decode::CombineShared<stof::decode::Config>) == {shared},
              "host and device disagree on the combine");
extern "C" __global__ void __launch_bounds__({threads}, {resident})
combine(const __grid_constant__ stof::decode::DecodeParams params) {{
  stof::decode::combine_kernel<stof::decode::Derived<stof::decode::Config>>(params);
}}
)",
                     fmt::arg("threads", kDecodeCombineThreads),
                     // 64 registers: left alone, ptxas took 32 and spilled.
                     fmt::arg("resident", 8), fmt::arg("blocks", kDecodeMaxBlocks),
                     fmt::arg("shared", config.combine_shared_bytes()));
}

}  // namespace stof::codegen
