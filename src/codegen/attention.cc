#include "codegen/attention.h"

#include <fmt/core.h>

#include "codegen/attention_sm80.h"
#include "codegen/wgmma.h"
#include "core/check.h"

namespace stof::codegen {
namespace {

constexpr int kSharedLimit = 232448;  // dynamic bytes a block may ask for on sm_90 (227 KiB)

int round_up(int value, int step) { return (value + step - 1) / step * step; }
int chunks(int head_dim) { return (head_dim + 63) / 64; }

}  // namespace

int AttentionConfig::slabs() const {
  return family == KernelFamily::kSm90 ? warpgroups : warp_slabs * (split_columns ? 1 : warpgroups);
}

int AttentionConfig::threads() const {
  return 128 * (family == KernelFamily::kSm90 ? warpgroups + 1 : warpgroups);
}

int AttentionConfig::payload_bytes() const {
  const int words = (tile_kv / 2 + 31) / 32;
  return 128 * 4 * words * (query_rows() / 64);
}

int AttentionConfig::shared_bytes() const {
  if (family == KernelFamily::kSm80) return sm80_shared_bytes(*this);
  const int query = query_stages * warpgroups * 64 * 128 * chunks(head_dim_qk);
  const int ring =
      stages * (tile_kv * 128 * (chunks(head_dim_qk) + chunks(head_dim_v)) + payload_bytes());
  const int items = (varlen ? 64 : 32) * query_stages;
  const int key_tokens = needs_keys() ? 8 * stages : 0;
  return query + ring + items + key_tokens + 8 * (2 * query_stages + 4 * stages);
}

std::string AttentionConfig::name() const {
  if (family == KernelFamily::kSm80) return sm80_name(*this);
  std::string text =
      fmt::format("sm90_{}_qk{}_v{}_w{}_kv{}_s{}q{}_b{}r{}",
                  element == DType::kBFloat16 ? "bf16" : "fp16", head_dim_qk, head_dim_v,
                  warpgroups, tile_kv, stages, query_stages, blocks_per_sm, consumer_registers);
  for (const auto& [flag, suffix] : {std::pair{query_in_registers, "_qreg"},
                                     {pack_heads, "_packed"},
                                     {ping_pong, "_pingpong"},
                                     {softcap, "_softcap"},
                                     {alibi, "_alibi"},
                                     {bias, "_bias"},
                                     {position_bias, "_position"},
                                     {sink, "_sink"},
                                     {varlen, "_varlen"},
                                     {grid_order, "_grid"},
                                     {merge, "_merge"}})
    if (flag) text += suffix;
  return score_mod ? text + "_mod" + score_mod->tag : text;
}

void AttentionConfig::validate() const {
  if (family == KernelFamily::kSm80) return validate_sm80(*this);
  for (const int head_dim : {head_dim_qk, head_dim_v})
    STOF_CHECK(head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0, kInternal,
               "head dimension: expected a multiple of 8 from 8 to 256, got {}", head_dim);
  STOF_CHECK(warpgroups >= 1 && warpgroups <= 3, kInternal, "warpgroups: expected 1..3, got {}",
             warpgroups);
  STOF_CHECK(tile_kv >= 16 && tile_kv <= 256 && tile_kv % 16 == 0, kInternal,
             "tile_kv: expected a multiple of 16 up to 256, got {}", tile_kv);
  // setmaxnreg waits for registers that the others give back: more than the block was started with
  // never come.
  const int at_launch = 65536 / (threads() * blocks_per_sm) / 8 * 8;
  STOF_CHECK(warpgroups * consumer_registers + producer_registers <= at_launch * (warpgroups + 1),
             kInternal,
             "{}: {} registers of consumers and {} of the producer are more than {} threads "
             "have at launch",
             name(), consumer_registers, producer_registers, threads());
  STOF_CHECK(!ping_pong || warpgroups > 1, kInternal, "ping_pong: needs two or more warpgroups");
  STOF_CHECK(shared_bytes() <= kSharedLimit / blocks_per_sm - 1024 * (blocks_per_sm > 1), kInternal,
             "{}: needs {} bytes of shared memory, {} blocks have {} each", name(), shared_bytes(),
             blocks_per_sm, kSharedLimit / blocks_per_sm);
}

std::string emit_attention(const AttentionConfig& config) {
  config.validate();
  if (config.family == KernelFamily::kSm80) return emit_sm80(config);
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string text = "// " + config.name() + "\n#include \"ptx/types.cuh\"\nnamespace stof {\n";
  text += emit_wgmma_scores(config.element, config.tile_kv, config.query_in_registers);
  text += emit_wgmma_output(config.element, round_up(config.head_dim_v, 8));
  text += "}\n#include \"attention/sm90_blockwise/kernel.cuh\"\n";
  if (config.score_mod) text += config.score_mod->text;
  text += fmt::format(
      R"(namespace stof {{
struct Config {{
  using Element = ptx::{element};
  static constexpr int kHeadDimQk = {qk}, kHeadDimV = {v};
  static constexpr int kWarpgroups = {wg}, kTileKv = {kv}, kStages = {stages}, kQueryStages = {qstages};
  static constexpr bool kQueryInRegisters = {qreg}, kPackHeads = {pack}, kPingPong = {pingpong}, kMerge = {merge};
  static constexpr bool kSoftcap = {softcap}, kAlibi = {alibi}, kBias = {bias}, kPositionBias = {position};
  {score_mod}
  static constexpr bool kSink = {sink}, kVarlen = {varlen}, kGridOrder = {grid};
  static constexpr int kConsumerRegisters = {creg}, kProducerRegisters = {preg};
}};
static_assert(Derived<Config>::kSharedBytes == {shared}, "host and device disagree on shared memory");
static_assert(Derived<Config>::kPayloadBytes == {payload}, "host and device disagree on payloads");
}}
extern "C" __global__ void __launch_bounds__({threads}, {blocks})
attention(const __grid_constant__ {params} params, const __grid_constant__ stof::ptx::TensorMap q,
          const __grid_constant__ stof::ptx::TensorMap k, const __grid_constant__ stof::ptx::TensorMap v) {{
  stof::sm90_blockwise<stof::Config>(params, stof::OperandMaps{{&q, &k, &v}});
}}
)",
      fmt::arg("element", config.element == DType::kBFloat16 ? "BFloat16" : "Float16"),
      fmt::arg("qk", config.head_dim_qk), fmt::arg("v", config.head_dim_v),
      fmt::arg("wg", config.warpgroups), fmt::arg("kv", config.tile_kv),
      fmt::arg("stages", config.stages), fmt::arg("qstages", config.query_stages),
      fmt::arg("qreg", flag(config.query_in_registers)), fmt::arg("pack", flag(config.pack_heads)),
      fmt::arg("pingpong", flag(config.ping_pong)), fmt::arg("softcap", flag(config.softcap)),
      fmt::arg("alibi", flag(config.alibi)), fmt::arg("bias", flag(config.bias)),
      fmt::arg("position", flag(config.position_bias)),
      fmt::arg("score_mod", score_mod_members(config.score_mod.get())),
      fmt::arg("params", params_type(config.score_mod.get())), fmt::arg("sink", flag(config.sink)),
      fmt::arg("varlen", flag(config.varlen)), fmt::arg("grid", flag(config.grid_order)),
      fmt::arg("merge", flag(config.merge)), fmt::arg("creg", config.consumer_registers),
      fmt::arg("preg", config.producer_registers), fmt::arg("shared", config.shared_bytes()),
      fmt::arg("payload", config.payload_bytes()), fmt::arg("threads", config.threads()),
      fmt::arg("blocks", config.blocks_per_sm));
  return text;
}

}  // namespace stof::codegen
