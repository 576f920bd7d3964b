#include "backend/cuda/attention/decode_config.h"

#include <algorithm>

#include "backend/cuda/attention/configs.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

/// Ring that `blocks` blocks of an SM have room for, no deeper than keeps enough bytes under way:
/// what it leaves is first-level cache, which the loads of the kernels around it go through. 0 or
/// 1: none.
int ring_depth(const codegen::DecodeConfig& config, int blocks, const KernelTarget& target) {
  constexpr int kReservedBytes = 1024;  // by the system, each block
  constexpr int kUnderWay = 64 << 10, kLeast = 3;
  const int room =
      std::min(target.shared_per_sm() / blocks - kReservedBytes, target.shared_per_block());
  const int bytes = std::max(1, config.stage_bytes());
  const int enough = 1 + (kUnderWay + blocks * bytes - 1) / (blocks * bytes);
  const int stages = std::min(std::max(kLeast, enough), (room - config.query_bytes()) / bytes);
  return config.query_bytes() + config.merge_bytes() <= room ? std::max(stages, 0) : 0;
}

/// Whether the last block of a sequence merges its parts: they are few, else a kernel of many
/// blocks is faster, and nobody notices a launch more.
bool merges_parts(const DecodeProblem& problem, const DecodeGrid& grid, int tile_keys) {
  if (grid.max_waves > 1) return false;
  constexpr std::int64_t kMostBytes = 64 << 10, kMostOfOneBytes = 256 << 10;
  const std::int64_t part_bytes = grid.slot_rows * (4 * problem.head_dim_v + 8);
  // Each piece but the first and the last of a sequence is a whole block's. Where one sequence is
  // long and the others are short, nearly all blocks may walk it, a tile or more each.
  const std::int64_t sequences = problem.batch * problem.num_heads_kv * grid.row_blocks;
  const std::int64_t parts = grid.blocks() / sequences + 2;
  const std::int64_t most_of_one = problem.lengths && problem.batch > 1
                                       ? std::min(grid.blocks(), problem.max_seq_kv / tile_keys + 2)
                                       : parts;
  return parts * part_bytes <= kMostBytes && most_of_one * part_bytes <= kMostOfOneBytes;
}

/// Without what the grid decides.
codegen::DecodeConfig shape_config(const DecodeProblem& problem, bool lists, int major, int minor) {
  codegen::DecodeConfig config;
  config.element = problem.dtype;
  config.head_dim_qk = static_cast<int>(problem.head_dim_qk);
  config.head_dim_v = static_cast<int>(problem.head_dim_v);
  config.page_size = static_cast<int>(problem.page_size);
  config.lists = lists;
  config.softcap = problem.softcap > 0;
  config.alibi = problem.alibi;
  config.position_bias = problem.position_bias.num_buckets > 0;
  config.early_start = major >= 9;
  config.early_keys = problem.early_keys && config.early_start && !lists;

  // All rows of a group share the loaded keys: as many warps side by side as rows need, the rest
  // take keys of their own. Wide heads leave registers for one row tile a warp.
  const std::int64_t rows = packed_rows(problem);
  const bool wide = std::max(problem.head_dim_qk, problem.head_dim_v) > 128;
  // What a position bias reads and holds would spill beside a second row tile, or two steps of a
  // wide head.
  const bool biased = config.position_bias;
  config.row_warps = rows <= 16 ? 1 : rows <= 32 ? 2 : 4;

  // A third stage is worth more than a larger one (with two, copies stop while the last tile is
  // computed), all warps busy more than a second block, which hides starts and ends.
  KernelTarget target;
  target.compute_capability = 10 * major + minor;
  const int warps = 4 / config.row_warps;
  for (const int row_tiles : {rows > 64 && !wide && !biased ? 2 : 1, 1})
    for (const int stages : {3, 2})
      for (const int key_warps : {warps, std::max(1, warps / 2), 1})
        for (const int blocks : {2, 1})
          for (const int tile_keys : {64, 32, 16}) {
            if (tile_keys < 16 * key_warps || (biased && wide && tile_keys > 16 * key_warps))
              continue;
            config.row_tiles = row_tiles;
            config.tile_keys = tile_keys;
            config.key_warps = key_warps;
            config.blocks_per_sm = blocks;
            config.stages = ring_depth(config, blocks, target);
            if (config.stages >= stages) return config;
          }
  throw_error(ErrorCode::kInternal, "decode: no ring fits compute capability {}.{} for {}", major,
              minor, problem.describe());
}

}  // namespace

codegen::DecodeConfig decode_config(const DecodeProblem& problem, bool lists, int major, int minor,
                                    int num_sms) {
  codegen::DecodeConfig config = shape_config(problem, lists, major, minor);
  config.merges = merges_parts(problem, decode_grid(problem, config, num_sms), config.tile_keys);
  return config;
}

DecodeGrid decode_grid(const DecodeProblem& problem, const codegen::DecodeConfig& config,
                       int num_sms) {
  constexpr std::int64_t kMostWaves = 4, kMostWorkspace = std::int64_t{64} << 20;
  DecodeGrid grid;
  const std::int64_t rows = packed_rows(problem);
  grid.row_blocks = static_cast<std::int32_t>((rows + config.rows() - 1) / config.rows());
  grid.slot_rows = static_cast<std::int32_t>(std::min<std::int64_t>(rows, config.rows()));
  grid.resident_blocks = std::min(num_sms * config.blocks_per_sm, codegen::kDecodeMaxBlocks);
  const std::int64_t slot_bytes = grid.slot_rows * (4 * problem.head_dim_v + 8);
  // The longest caches decide how many blocks can have work worth their start (partition_tiles() in
  // schedule.cuh); those beyond would be launched only to leave.
  constexpr std::int64_t kTilesWorthABlock = 32;
  const std::int64_t keys =
      problem.window_left
          ? std::min(problem.max_seq_kv, *problem.window_left + problem.window_right.value_or(0) +
                                             problem.seq_q + problem.sink_tokens + 64)
          : problem.max_seq_kv;
  const std::int64_t tiles =
      (keys / config.tile_keys + 1) * problem.batch * problem.num_heads_kv * grid.row_blocks;
  const std::int64_t waves =
      std::min({kMostWaves, kMostWorkspace / (2 * grid.resident_blocks * slot_bytes),
                std::int64_t{codegen::kDecodeMaxBlocks / grid.resident_blocks},
                tiles / (kTilesWorthABlock * grid.resident_blocks)});
  grid.max_waves = static_cast<std::int32_t>(std::max<std::int64_t>(1, waves));
  // One tile more for the end of a window, one for the end of the sinks. With fewer blocks
  // multiprocessors are left to the kernel behind.
  const std::int64_t most_tiles =
      (keys / config.tile_keys + 3) * problem.batch * problem.num_heads_kv * grid.row_blocks;
  grid.resident_blocks =
      static_cast<std::int32_t>(std::min<std::int64_t>(grid.resident_blocks, most_tiles));
  return grid;
}

}  // namespace stof::cuda
