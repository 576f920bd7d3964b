#include "backend/cuda/attention/grid_lists.h"

#include <bit>

namespace stof::cuda {

GridCut grid_cut(const plan::GridTiling& tiling) {
  GridCut cut;
  for (std::size_t d = 0; d < mask::kGridDims; ++d)
    cut.shift[d] = std::countr_zero(static_cast<std::uint32_t>(tiling.tile[d]));
  return cut;
}

plan::GridTile grid_box(const plan::GridTiling& tiling, std::int64_t rows) {
  plan::GridTile box = tiling.tile;
  std::int64_t parts = tiling.tile_size() / rows;
  for (std::int32_t& extent : box)
    for (; parts > 1 && extent > 1; parts /= 2) extent /= 2;
  return box;
}

std::int32_t grid_tile(const plan::GridTiling& tiling, std::int64_t number) {
  static_assert(plan::kMaxGridTiles <= 256);
  const std::int64_t x = number % tiling.tiles(2), line = number / tiling.tiles(2);
  return static_cast<std::int32_t>(x | line % tiling.tiles(1) << 8 | line / tiling.tiles(1) << 16);
}

void place_on_grid(const plan::GridOrder& order, DevicePlan* plan) {
  constexpr int kPlaceBits = 7;  // kGridPlaceBits
  for (WorkRecord& record : plan->records)
    record.q_row = grid_tile(order.q, record.q_row / order.q.tile_size()) << kPlaceBits;
  for (plan::PartialTile& tile : plan->partial) tile.tile = grid_tile(order.kv, tile.tile);
  // A run stays in its line. Its end may be the place after a line of 256, which has no name but is
  // only compared with.
  for (plan::TileRun& run : plan->runs) {
    const std::int32_t length = run.end - run.begin;
    run.begin = grid_tile(order.kv, run.begin);
    run.end = run.begin + length;
  }
}

DevicePlan build_grid_device_plan(const AttentionProblem& problem, const plan::GridOrder& order,
                                  const codegen::AttentionConfig& config, int num_blocks) {
  AttentionProblem entry = problem;
  entry.batch = 1;
  DevicePlan plan = build_device_plan(
      entry, plan::build_grid_plan(order, 1, problem.num_heads_q, plan_config(config)), config,
      num_blocks);
  place_on_grid(order, &plan);
  return plan;
}

}  // namespace stof::cuda
