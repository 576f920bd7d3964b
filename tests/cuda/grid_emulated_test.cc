// What device code makes of positions and tiles in grid order, against the host's order.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attention/grid.cuh"
#include "backend/cuda/attention/grid_lists.h"
#include "backend/cuda/attention/tensor_maps.h"

namespace stof {
namespace {

using I = std::int64_t;

plan::GridTiling random_tiling(I rows) {
  plan::GridTiling tiling;
  for (auto& extent : tiling.extent) extent = *rc::gen::inRange<I>(1, 40);
  for (; rows > 1; rows /= 2) tiling.tile[*rc::gen::inRange<std::size_t>(0, 3)] *= 2;
  return tiling;
}

GridCut device_cut(const plan::GridTiling& tiling) {
  const cuda::GridCut cut = cuda::grid_cut(tiling);
  return {{cut.shift[0], cut.shift[1], cut.shift[2]}};
}

RC_GTEST_PROP(GridPoint, IsTheTokenOfThePosition, ()) {
  const plan::GridTiling tiling = random_tiling(*rc::gen::element<I>(64, 128));
  const i32 extent[3] = {static_cast<i32>(tiling.extent[0]), static_cast<i32>(tiling.extent[1]),
                         static_cast<i32>(tiling.extent[2])};
  const GridCut cut = device_cut(tiling);
  for (I tile = 0; tile < tiling.num_tiles(); ++tile) {
    const i32 name = cuda::grid_tile(tiling, tile);
    for (i32 row = 0; row < tiling.tile_size(); ++row) {
      const i32 token = grid_token(extent, grid_point(cut, name, row));
      RC_ASSERT(token == tiling.token(tile * tiling.tile_size() + row));
    }
  }
}

/// Rows of a box, x fastest, from the point where 64-row part `part` of a tile begins.
RC_GTEST_PROP(GridPoint, HalvesOfATileAreBoxes, ()) {
  const plan::GridTiling tiling = random_tiling(128);
  const GridCut cut = device_cut(tiling);
  const plan::GridTile box = cuda::grid_box(tiling, 64);
  RC_ASSERT(box[0] * box[1] * box[2] == 64);
  const i32 tile = cuda::grid_tile(tiling, tiling.num_tiles() - 1);
  for (i32 first : {0, 64}) {
    const GridPoint start = grid_point(cut, tile, first);
    for (i32 row = 0; row < 64; ++row) {
      const GridPoint at = grid_point(cut, tile, first + row);
      RC_ASSERT(at.x - start.x == row % box[2]);
      RC_ASSERT(at.y - start.y == row / box[2] % box[1]);
      RC_ASSERT(at.z - start.z == row / box[2] / box[1]);
    }
  }
}

/// Where the copy engine reads row `row` of the box that begins at `start`; -1: outside, which
/// lands as zero. Rows land with the fastest dimension first.
I address_of_row(const cuda::MapLayout& map, GridPoint start, I head, I row) {
  I at[4] = {start.x, start.y, start.z, head}, address = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    at[d] += row % map.box[d + 1];
    row /= map.box[d + 1];
    if (at[d] >= map.extents[d + 1]) return -1;
    address += at[d] * map.strides[d + 1];
  }
  return address;
}

RC_GTEST_PROP(GridMap, LandsTheTokensOfATile, ()) {
  const I rows = *rc::gen::element<I>(64, 128), slab = *rc::gen::element<I>(64, rows), heads = 3;
  const plan::GridTiling tiling = random_tiling(rows);
  const I tokens = tiling.extent[0] * tiling.extent[1] * tiling.extent[2];
  const I row_stride = *rc::gen::element<I>(8, 24, 0), head_stride = *rc::gen::element<I>(8, 999);
  TensorView view;
  view.shape = {1, heads, tokens, 8};
  view.strides = {0, head_stride, row_stride, 1};
  const cuda::MapLayout map = cuda::grid_layout(view, slab, tiling);
  for (I tile = 0; tile < tiling.num_tiles(); ++tile)
    for (I first = 0; first < rows; first += slab) {
      const GridPoint start =
          grid_point(device_cut(tiling), cuda::grid_tile(tiling, tile), static_cast<i32>(first));
      for (I row = 0; row < slab; ++row) {
        const I token = tiling.token(tile * rows + first + row);
        const I expected = token < 0 ? -1 : token * row_stride + 2 * head_stride;
        RC_ASSERT(address_of_row(map, start, 2, row) == expected);
      }
    }
}

TEST(GridLists, HoldCoordinates) {
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads_q = problem.num_heads_kv = 3;
  problem.seq_q = problem.seq_kv = 5 * 18 * 21;
  problem.dtype = DType::kBFloat16;
  const mask::Mask bound = mask::neighbourhood({{5, 18, 21}, {3, 9, 11}, {}, {}, {}})
                               .bind({2, 3, problem.seq_q, problem.seq_kv});
  codegen::AttentionConfig config;
  config.tile_kv = 64;
  config.grid_order = true;
  const auto order = plan::GridTiler(*mask::neighbourhood_axes(bound, problem.seq_q))
                         .best(config.query_rows(), config.tile_kv);
  ASSERT_TRUE(order.has_value());
  const plan::MaskPlan numbered = plan::build_grid_plan(*order, 1, 3, cuda::plan_config(config));
  cuda::DevicePlan plan = cuda::build_device_plan(problem, numbered, config, 8, false);
  const cuda::DevicePlan before = plan;
  cuda::place_on_grid(*order, &plan);
  ASSERT_EQ(plan.records.size(), before.records.size());
  for (std::size_t i = 0; i < plan.records.size(); ++i)
    EXPECT_EQ(plan.records[i].q_row >> kGridPlaceBits,
              cuda::grid_tile(order->q, before.records[i].q_row / order->q.tile_size()));
  for (std::size_t i = 0; i < plan.partial.size(); ++i)
    EXPECT_EQ(plan.partial[i].tile, cuda::grid_tile(order->kv, before.partial[i].tile));
  for (std::size_t i = 0; i < plan.runs.size(); ++i)
    for (i32 j = 0; j < before.runs[i].end - before.runs[i].begin; ++j)
      EXPECT_EQ(plan.runs[i].begin + j, cuda::grid_tile(order->kv, before.runs[i].begin + j));
}

}  // namespace
}  // namespace stof
