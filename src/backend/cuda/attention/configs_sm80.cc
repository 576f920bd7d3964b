#include <fmt/core.h>

#include <algorithm>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/score_mod.h"

namespace stof::cuda {
namespace {

using Config = codegen::AttentionConfig;

Config base_config(const AttentionProblem& problem, const KernelTarget& target) {
  Config config;
  config.family = codegen::KernelFamily::kSm80;
  config.element = problem.dtype;
  config.head_dim_qk = static_cast<int>(problem.head_dim_qk);
  config.head_dim_v = static_cast<int>(problem.head_dim_v);
  config.softcap = problem.softcap > 0;
  config.alibi = problem.alibi;
  config.bias = problem.bias;
  config.position_bias = problem.position_bias.num_buckets > 0;
  config.score_mod = score_mod_code(problem);
  config.sink = problem.sink;
  config.warpgroups = 1;
  config.tile_kv = 64;
  config.load_bytes = target.alignment % 16 == 0 ? 16 : target.alignment % 4 == 0 ? 4 : 2;
  return config;
}

/// The largest blocks_per_sm up to `most` that shared memory holds; 0: not even one.
int blocks_that_fit(const Config& config, int most, const KernelTarget& target) {
  constexpr int kReservedBytes = 1024;  // of every block
  return std::min(most, target.shared_per_sm() / (config.shared_bytes() + kReservedBytes));
}

/// Head dims to 64.
std::vector<Config> narrow_configs(const Config& base) {
  Config wide = base;  // 128 x 64
  wide.warp_slabs = 2;
  wide.query_in_registers = true;
  wide.blocks_per_sm = 2;
  Config tall = wide;  // 256 x 64, eight warps: K and V are copied once for all
  tall.warpgroups = 2;
  tall.blocks_per_sm = 1;
  Config long_tile = wide;  // 128 x 96: fewer barriers a key
  long_tile.tile_kv = 96;
  Config small = base;  // 64 x 64
  small.query_in_registers = true;
  small.blocks_per_sm = 4;
  // What a bias, softcap or score modification holds would spill beside 96 keys' scores.
  if (base.bias || base.position_bias || base.softcap || base.score_mod) return {wide, tall, small};
  return {wide, tall, long_tile, small};
}

/// Head dims 72 to 128: the output and the scores of 128 rows take all registers of two blocks.
std::vector<Config> middle_configs(const Config& base, const KernelTarget& target) {
  Config wide = base;  // 128 x 64
  wide.warp_slabs = 2;
  wide.blocks_per_sm = 2;
  // Two slabs' scores of 64 keys beside what modifications hold would spill, as would the plain
  // kernel in what is compiled for 10.0.
  const bool holds_more = base.softcap || base.needs_keys() || target.compute_capability >= 100;
  if (holds_more || blocks_that_fit(wide, 2, target) < 2) wide.tile_kv = 32;
  if (blocks_that_fit(wide, 2, target) < 2) wide.stages = 1;
  Config small = base;  // 64 x 64
  small.query_in_registers = true;
  small.blocks_per_sm = 2;
  if (blocks_that_fit(small, 2, target) < 2) small.tile_kv = 32;
  Config tall = wide;  // 256 rows, eight warps: K and V are copied once for all
  tall.warpgroups = 2;
  tall.stages = 2;
  tall.blocks_per_sm = 1;
  return {wide, tall, small};
}

/// Head dims 136 to 256: eight warps of 16 rows where shared memory holds them, else four.
std::vector<Config> broad_configs(const Config& base, const KernelTarget& target) {
  Config config = base;
  config.warpgroups = 2;
  if (blocks_that_fit(config, 1, target) < 1) config.stages = 1;
  if (blocks_that_fit(config, 1, target) < 1) {
    config.warpgroups = 1;
    config.stages = 2;
    config.tile_kv = 32;
  }
  return {config};
}

/// Head dims above 256: two warpgroups halve the output's columns.
std::vector<Config> huge_configs(const Config& base, const KernelTarget& target) {
  Config config = base;
  config.warpgroups = 2;
  config.split_columns = true;
  config.tile_kv = 32;
  if (blocks_that_fit(config, 1, target) < 1) config.stages = 1;
  if (blocks_that_fit(config, 1, target) < 1) config.tile_kv = 16;
  return {config};
}

}  // namespace

std::vector<Config> sm80_configs(const AttentionProblem& problem, bool shared_heads,
                                 const KernelTarget& target) {
  const Config base = base_config(problem, target);
  const std::int64_t widest = std::max(problem.head_dim_qk, problem.head_dim_v);
  std::vector<Config> configs = widest <= 64    ? narrow_configs(base)
                                : widest <= 128 ? middle_configs(base, target)
                                : widest <= 256 ? broad_configs(base, target)
                                                : huge_configs(base, target);
  const bool can_pack = problem.num_heads_q / problem.num_heads_kv % 2 == 0 && shared_heads;
  if (can_pack && configs[0].slabs() == 2) {
    Config packed = configs[0];
    packed.pack_heads = true;
    configs.push_back(packed);
  }
  for (Config& config : configs)
    config.blocks_per_sm = blocks_that_fit(config, config.blocks_per_sm, target);
  configs.erase(std::remove_if(configs.begin(), configs.end(),
                               [](const Config& config) { return config.blocks_per_sm < 1; }),
                configs.end());
  return configs;
}

}  // namespace stof::cuda
