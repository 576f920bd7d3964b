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

/// How often the kernel computes and shows each (head, query, key), read from a plan's lists, bits
/// and coordinates as the kernel does. A place without a token that is shown as a key fails.
class GridInterpreter {
 public:
  GridInterpreter(const cuda::DevicePlan& plan, const codegen::AttentionConfig& config,
                  const plan::GridOrder& order, I heads)
      : plan_(plan), config_(config), order_(order) {
    for (std::size_t d = 0; d < 3; ++d) extent_[d] = static_cast<i32>(order.q.extent[d]);
    tokens_ = order.q.extent[0] * order.q.extent[1] * order.q.extent[2];
    seen_.assign(static_cast<std::size_t>(heads * tokens_ * tokens_), 0);
    for (const cuda::WorkRecord& record : plan.records) {
      for (int i = 0; i < record.num_partial; ++i) {
        const auto& tile = plan.partial[static_cast<std::size_t>(record.partial_begin + i)];
        visit(record, tile.tile, tile.payload);
      }
      int left = record.num_full;
      for (int run = record.run_begin; left > 0; ++run) {
        const auto& tiles = plan.runs[static_cast<std::size_t>(run)];
        for (int tile = tiles.begin; tile != tiles.end; ++tile, --left) visit(record, tile, -1);
      }
    }
  }
  int seen(I h, I q, I k) const {
    return seen_[static_cast<std::size_t>((h * tokens_ + q) * tokens_ + k)];
  }

 private:
  void visit(const cuda::WorkRecord& record, i32 tile, int payload) {
    const GridCut q_cut = device_cut(order_.q), kv_cut = device_cut(order_.kv);
    const int words = (config_.tile_kv / 2 + 31) / 32;
    for (int slab = 0; slab < config_.slabs(); ++slab)
      for (int thread = 0; thread < 128; ++thread)
        for (int i = 0; i < config_.tile_kv / 2; ++i) {
          if (payload >= 0) {
            const int at = payload * config_.payload_bytes() / 4 +
                           (config_.pack_heads ? 0 : slab * words * 128) + i / 32 * 128 + thread;
            if ((plan_.payloads[static_cast<std::size_t>(at)] >> (i % 32) & 1) == 0) continue;
          }
          // PTX ISA, accumulator layout of wgmma.
          const i32 position = record.q_row + (config_.pack_heads ? 0 : 64 * slab) +
                               16 * (thread / 32) + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
          const i32 column = i / 4 * 8 + thread % 4 * 2 + i % 2;
          const i32 query =
              grid_token(extent_, grid_point(q_cut, position >> kGridPlaceBits, position & 127));
          if (query < 0) continue;  // never stored
          const i32 key = grid_token(extent_, grid_point(kv_cut, tile, column));
          RC_ASSERT(key >= 0);
          const I head = record.head + (config_.pack_heads ? slab : 0);
          ++seen_[static_cast<std::size_t>((head * tokens_ + query) * tokens_ + key)];
        }
  }

  const cuda::DevicePlan& plan_;
  const codegen::AttentionConfig& config_;
  const plan::GridOrder& order_;
  i32 extent_[3];
  I tokens_;
  std::vector<int> seen_;
};

/// Returns how many parts of query tiles there are.
std::size_t expect_mask(const mask::Neighbourhood& n, const AttentionProblem& problem,
                        const codegen::AttentionConfig& config, int num_blocks) {
  const mask::Mask bound = mask::neighbourhood(n).bind(
      {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv});
  const auto order = plan::GridTiler(*mask::neighbourhood_axes(bound, problem.seq_q))
                         .best(config.query_rows(), config.tile_kv);
  RC_ASSERT(order.has_value());
  const cuda::DevicePlan plan = cuda::build_grid_device_plan(problem, *order, config, num_blocks);
  const GridInterpreter kernel(plan, config, *order, problem.num_heads_q);
  for (I h = 0; h < problem.num_heads_q; ++h)
    for (I q = 0; q < problem.seq_q; ++q)
      for (I k_begin = 0; k_begin < problem.seq_kv; k_begin += 64) {
        const std::uint64_t bits = bound.row_bits(0, h, q, k_begin);
        for (I k = k_begin; k < std::min(k_begin + 64, problem.seq_kv); ++k)
          if (kernel.seen(h, q, k) != static_cast<int>(bits >> (k - k_begin) & 1))
            RC_FAIL("query " + std::to_string(q) + ", key " + std::to_string(k));
      }
  return plan.parts.size();
}

/// With packed heads too.
RC_GTEST_PROP(GridLists, ShowWhatTheMaskDoes, ()) {
  mask::Neighbourhood n;
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads_q = 2;
  problem.num_heads_kv = *rc::gen::inRange(1, 3);
  problem.seq_q = 1;
  for (int d = 0; d < 3; ++d) {
    n.grid.push_back(*rc::gen::inRange<I>(1, d == 0 ? 4 : 9));
    n.kernel.push_back(*rc::gen::inRange<I>(1, 12));
    problem.seq_q *= n.grid.back();
  }
  problem.seq_kv = problem.seq_q;
  problem.dtype = DType::kBFloat16;
  codegen::AttentionConfig config;
  config.tile_kv = *rc::gen::element(64, 128);
  config.warpgroups = *rc::gen::inRange(1, 3);
  config.pack_heads = config.warpgroups == 2 && problem.num_heads_kv == 1;
  config.grid_order = true;
  expect_mask(n, problem, config, 8);
}

TEST(GridLists, ShowItInPartsOfQueryTiles) {
  AttentionProblem problem;
  problem.seq_q = problem.seq_kv = 6 * 14 * 16;
  problem.dtype = DType::kBFloat16;
  codegen::AttentionConfig config;
  config.warpgroups = 1;
  config.tile_kv = 64;
  config.grid_order = true;
  EXPECT_GT(expect_mask({{6, 14, 16}, {5, 13, 12}, {}, {}, {}}, problem, config, 60), 0u);
}

}  // namespace
}  // namespace stof
