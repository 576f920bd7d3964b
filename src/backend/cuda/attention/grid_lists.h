#pragma once
// A plan in grid order as the Hopper kernel reads it: tiles named by their coordinates. Mirrors
// kernels/attention/grid.cuh.

#include <cstdint>

#include "backend/cuda/attention/device_plan.h"
#include "plan/grid_order.h"

namespace stof::cuda {

struct GridCut {
  std::int32_t shift[3];
};

GridCut grid_cut(const plan::GridTiling& tiling);

/// The box of the first `rows` rows of a tile, whose other parts of as many rows are alike: cut
/// along z, then along y, then along x.
plan::GridTile grid_box(const plan::GridTiling& tiling, std::int64_t rows);

/// A tile of the tiling by its number: x | y << 8 | z << 16.
std::int32_t grid_tile(const plan::GridTiling& tiling, std::int64_t number);

/// Turns the numbers of tiles and the positions of a plan made by build_grid_plan() into
/// coordinates.
void place_on_grid(const plan::GridOrder& order, DevicePlan* plan);

/// The plan of one batch entry.
DevicePlan build_grid_device_plan(const AttentionProblem& problem, const plan::GridOrder& order,
                                  const codegen::AttentionConfig& config, int num_blocks);

}  // namespace stof::cuda
