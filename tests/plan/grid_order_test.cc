// Neighbourhoods in grid order, against the mask's own visible(), pair by pair.

#include "plan/grid_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "mask/grid_axis.h"
#include "plan/plan_support.h"

namespace stof::plan {
namespace {

using I = std::int64_t;

I random_int(I low, I high) { return *rc::gen::inRange<I>(low, high + 1); }

I size_of(const std::vector<I>& grid) {
  return std::accumulate(grid.begin(), grid.end(), I{1}, std::multiplies<>());
}

/// Two or three dimensions, kernels up to beyond the grid, now and then dilated, tiled and shifted.
mask::Neighbourhood random_neighbourhood() {
  mask::Neighbourhood n;
  const I rank = random_int(2, 3);
  const bool plain = random_int(0, 2) > 0;
  for (I d = 0; d < rank; ++d) {
    n.grid.push_back(random_int(1, rank == 2 ? 21 : 9));
    n.kernel.push_back(random_int(1, random_int(1, 12)));
    if (plain) continue;
    n.dilation.push_back(random_int(1, 3));
    n.tile.push_back(random_int(1, 4));
    n.shift.push_back(random_int(-3, 3));
  }
  return n;
}

GridTile random_tile(I size) {
  GridTile tile{1, 1, 1};
  for (I left = size; left > 1; left /= 2) {
    auto d = static_cast<std::size_t>(random_int(0, 2));
    if (tile[d] == kMaxGridTile) d = (d + 1) % 3;
    tile[d] *= 2;
  }
  return tile;
}

GridOrder random_order(const mask::Neighbourhood& n, PlanConfig* config) {
  const mask::Mask mask = mask::neighbourhood(n);
  const I tokens = size_of(n.grid);
  const auto axes = mask::neighbourhood_axes(mask.bind({1, 1, tokens, tokens}), tokens);
  RC_ASSERT(axes.has_value());
  GridOrder order{*axes, {}, {}};
  for (std::size_t d = 0; d < mask::kGridDims; ++d)
    order.q.extent[d] = order.kv.extent[d] = (*axes)[d].extent();
  config->tile_q = random_int(0, 1) ? 64 : 128;
  config->tile_kv = random_int(0, 1) ? 64 : 128;
  order.q.tile = random_tile(config->tile_q);
  order.kv.tile = random_tile(config->tile_kv);
  return order;
}

RC_GTEST_PROP(GridOrder, EveryTokenHasOnePlace, ()) {
  PlanConfig config;
  const mask::Neighbourhood n = random_neighbourhood();
  const GridTiling tiling = random_order(n, &config).q;
  I found = 0;
  for (I position = 0; position < tiling.num_positions(); ++position) {
    const I token = tiling.token(position);
    if (token < 0) continue;
    RC_ASSERT(token < size_of(n.grid));
    RC_ASSERT(tiling.position(token) == position);
    ++found;
  }
  RC_ASSERT(found == size_of(n.grid));
}

RC_GTEST_PROP(GridPlan, ShowsWhatTheMaskDoes, ()) {
  const mask::Neighbourhood n = random_neighbourhood();
  PlanConfig config;
  const GridOrder order = random_order(n, &config);
  const MaskPlan plan = build_grid_plan(order, 2, 3, config);
  plan.validate();
  RC_ASSERT(plan.pattern_index(1, 2) == 0);
  const mask::Mask mask = mask::neighbourhood(n);
  const std::vector<int> shown = draw_pattern(plan, 0);
  for (I i = 0; i < plan.shape.seq_q; ++i) {
    const I q = order.q.token(i);
    if (q < 0) continue;
    for (I j = 0; j < plan.shape.seq_kv; ++j) {
      const I k = order.kv.token(j);
      const int expected = k >= 0 && mask.visible(0, 0, q, k);
      if (shown[static_cast<std::size_t>(i * plan.shape.seq_kv + j)] != expected)
        RC_FAIL(order.name() + ", " + mask.to_text() + ": query " + std::to_string(q) + ", key " +
                std::to_string(k));
    }
  }
}

RC_GTEST_PROP(GridPlan, NoRunLeavesItsLine, ()) {
  PlanConfig config;
  const GridOrder order = random_order(random_neighbourhood(), &config);
  const I line = order.kv.tiles(2);
  for (const TileRun& run : build_grid_plan(order, 1, 1, config).runs)
    RC_ASSERT(run.begin / line == (run.end - 1) / line);
}

RC_GTEST_PROP(GridPlan, IsCountedWithoutBeingBuilt, ()) {
  PlanConfig config;
  const GridOrder order = random_order(random_neighbourhood(), &config);
  const MaskPlan plan = build_grid_plan(order, 1, 1, config);
  const auto counts = count_tiles(order);
  RC_ASSERT(counts.size() == plan.items.size());
  for (const WorkItem& item : plan.items) {
    I full = 0;
    for (auto i = item.run_begin; i < item.run_end; ++i) {
      const TileRun& run = plan.runs[static_cast<std::size_t>(i)];
      full += run.end - run.begin;
    }
    const GridTileCount& count = counts[static_cast<std::size_t>(item.q_tile)];
    RC_ASSERT(count.full == full && count.partial == item.partial_end - item.partial_begin);
  }
}

/// A video model's attention.
mask::Mask video() { return mask::neighbourhood({{21, 30, 52}, {7, 14, 14}, {}, {}, {}}); }
constexpr I kVideoTokens = 21 * 30 * 52;

TEST(GridTiler, TouchesFewerTilesThanTheNaturalOrder) {
  const mask::ScoreShape shape{1, 1, kVideoTokens, kVideoTokens};
  const mask::Mask bound = video().bind(shape);
  GridTiler tiler(*mask::neighbourhood_axes(bound, kVideoTokens));
  const auto order = tiler.best(64, 64);
  ASSERT_TRUE(order.has_value());
  I computed = 0;
  for (const GridTileCount& count : count_tiles(*order)) computed += count.full + count.partial;
  const double useful = 1372.0 * kVideoTokens / (static_cast<double>(computed) * 64 * 64);
  EXPECT_GT(useful, 0.36) << order->name();
  I natural = 0;
  const MaskPlan plan = build(video(), shape);
  for (const TileRun& run : plan.runs) natural += run.end - run.begin;
  natural += static_cast<I>(plan.partial.size());
  EXPECT_LT(1.5 * static_cast<double>(computed), static_cast<double>(natural));
}

TEST(GridTiler, RefusesWhatKernelsCannotAddress) {
  const I tokens = 3 * 40000;
  const mask::Mask bound =
      mask::neighbourhood({{3, 40000}, {3, 5}, {}, {}, {}}).bind({1, 1, tokens, tokens});
  GridTiler tiler(*mask::neighbourhood_axes(bound, tokens));
  EXPECT_FALSE(tiler.best(64, 64).has_value());
  EXPECT_FALSE(tiler.best(128, 160).has_value());  // no box
}

TEST(NeighbourhoodAxes, AreThoseOfOneWholeNeighbourhood) {
  const mask::Mask n = mask::neighbourhood({{4, 5, 6}, {3, 3, 3}, {}, {}, {}});
  const auto has_axes = [](const mask::Mask& mask, I seq_q, I seq_kv) {
    return mask::neighbourhood_axes(mask.bind({1, 2, seq_q, seq_kv}, mask::Alignment::kBottomRight),
                                    seq_q)
        .has_value();
  };
  EXPECT_TRUE(has_axes(n, 120, 120));
  EXPECT_TRUE(has_axes(n & mask::all(), 120, 120));
  EXPECT_FALSE(has_axes(n, 121, 121));
  EXPECT_FALSE(has_axes(n, 120, 121));  // shifted
  EXPECT_FALSE(has_axes(n & mask::causal(), 120, 120));
  EXPECT_FALSE(has_axes(n | mask::global(1, 1), 120, 120));
  EXPECT_FALSE(has_axes(mask::all(), 120, 120));
}

}  // namespace
}  // namespace stof::plan
