#include <algorithm>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/score_mod.h"

namespace stof::cuda {
namespace {

using Config = codegen::AttentionConfig;

Config base_config(const AttentionProblem& problem) {
  Config config;
  config.element = problem.dtype;
  config.head_dim_qk = static_cast<int>(problem.head_dim_qk);
  config.head_dim_v = static_cast<int>(problem.head_dim_v);
  config.softcap = problem.softcap > 0;
  config.alibi = problem.alibi;
  config.bias = problem.bias;
  config.position_bias = problem.position_bias.num_buckets > 0;
  config.score_mod = score_mod_code(problem);
  config.sink = problem.sink;
  return config;
}

/// Head dims to 64: little shared memory a key, so many small blocks or three warpgroups.
std::vector<Config> narrow_configs(const Config& base) {
  Config wide = base;  // 192 x 128
  wide.warpgroups = 3;
  wide.tile_kv = base.softcap || base.score_mod ? 96 : 128;  // 160 registers leave none for more
  wide.stages = 3;
  wide.query_stages = 2;
  wide.consumer_registers = 160;
  wide.ping_pong = true;
  Config small = base;  // 64 x 64, three blocks an SM
  small.warpgroups = 1;
  small.tile_kv = 64;
  small.stages = 3;
  small.query_stages = 1;
  small.blocks_per_sm = 3;
  small.consumer_registers = 136;
  Config single = small;  // 64 x 128, two blocks an SM
  single.tile_kv = 128;
  single.stages = 2;
  single.blocks_per_sm = 2;
  single.consumer_registers = 232;
  Config small_held = small, single_held = single;
  small_held.query_in_registers = single_held.query_in_registers = true;
  return {wide, small, small_held, single, single_held};
}

/// Head dims 72 to 128.
std::vector<Config> middle_configs(const Config& base, bool can_pack) {
  Config square = base;  // 128 x 128
  square.query_stages = 2;
  Config square_turns = square;
  square_turns.ping_pong = true;
  Config wide = square_turns;  // 128 x 160
  wide.tile_kv = 160;
  wide.query_stages = 1;
  Config small = base;  // 64 x 64, two blocks an SM
  small.warpgroups = 1;
  small.tile_kv = 64;
  small.blocks_per_sm = 2;
  small.consumer_registers = 232;
  Config square_held = square_turns, small_held = small;
  square_held.query_in_registers = small_held.query_in_registers = true;
  square_held.query_stages = 1;
  std::vector<Config> configs = {square_turns, square, square_held, wide, small, small_held};
  if (can_pack) {
    Config packed = square;
    packed.pack_heads = true;
    Config packed64 = packed;
    packed64.tile_kv = 64;
    packed64.stages = 4;
    configs.push_back(packed);
    configs.push_back(packed64);
    Config packed64_held = packed64;
    packed64_held.query_in_registers = true;
    packed64_held.query_stages = 1;
    packed64_held.stages = 5;
    configs.push_back(packed64_held);
    packed64_held.ping_pong = true;
    configs.push_back(packed64_held);
  }
  return configs;
}

/// Head dims above 128: 64 or 96 keys a tile is what shared memory holds twice.
std::vector<Config> broad_configs(const Config& base) {
  Config config = base;
  config.query_stages = 1;
  config.tile_kv = std::max(base.head_dim_qk, base.head_dim_v) <= 192 ? 96 : 64;
  return {config};
}

/// A bias of either kind also holds a batch of loaded values (kernels/attention/scores.cuh), row
/// addresses and bounds: what compiles without spills (tests/cuda/kernel_build_test.cc).
bool bias_fits(const Config& config) {
  const int batch = config.softcap || config.tile_kv <= 64 ? 8 : 16;
  if (config.softcap && config.tile_kv >= 128) return false;
  return sm90_held_registers(config) + 44 + batch <= config.consumer_registers;
}

/// A score modification holds what eight calls of the caller's function compute, other ones what
/// they keep of a row: likewise, for the functions of that test. Q in registers and 160 keys a tile
/// leave some of those too few.
bool score_mod_fits(const Config& config) {
  const bool others = config.softcap || config.alibi || config.bias || config.position_bias;
  if (config.softcap && config.tile_kv >= 128) return false;
  if (others && config.warpgroups == 3) return false;
  return config.tile_kv <= 128 && !config.query_in_registers &&
         sm90_held_registers(config) + (others ? 56 : 52) <= config.consumer_registers;
}

std::vector<Config> all_configs(const AttentionProblem& problem, bool shared_heads) {
  const Config base = base_config(problem);
  const std::int64_t widest = std::max(problem.head_dim_qk, problem.head_dim_v);
  const bool can_pack = problem.num_heads_q / problem.num_heads_kv % 2 == 0 && shared_heads;
  if (widest <= 64) return narrow_configs(base);
  if (widest <= 128) return middle_configs(base, can_pack);
  return broad_configs(base);
}

}  // namespace

int sm90_held_registers(const Config& config) {
  const int scores = config.tile_kv / 2, weights = config.tile_kv / 4;
  const int query = config.query_in_registers ? (config.head_dim_qk + 15) / 16 * 4 : 0;
  return scores + weights + config.head_dim_v / 2 + query;
}

std::vector<Config> sm90_configs(const AttentionProblem& problem, bool shared_heads) {
  std::vector<Config> configs = all_configs(problem, shared_heads);
  if (problem.bias || problem.position_bias.num_buckets > 0)
    std::erase_if(configs, [](const Config& c) { return !bias_fits(c); });
  if (!problem.score_mod.empty())
    std::erase_if(configs, [](const Config& c) { return !score_mod_fits(c); });
  return configs;
}

}  // namespace stof::cuda
