#pragma once
// Grid order: tokens of a 1- to 3-dimensional grid sorted into tiles that are boxes of the grid
// (src/plan/grid_order.h). A tile is named by its coordinates, not by its number, so that nothing
// has to be divided; a box of the copy engine lands as a tile's rows, x fastest.

#include "ptx/thread.cuh"

namespace stof {

/// How one side, queries or keys, is cut. Mirrored by src/backend/cuda/attention/grid_lists.h.
struct GridCut {
  i32 shift[3];  // log2 of a tile's extents in z, y, x
};

/// A tile in lists: its coordinates x | y << 8 | z << 16. The next one along x is one more.
/// A position: the tile << kGridPlaceBits | the row inside it.
constexpr int kGridPlaceBits = 7;

/// Coordinates of a token; outside the grid at a place that holds none.
struct GridPoint {
  i32 z, y, x;
};

__device__ __forceinline__ GridPoint grid_point(const GridCut& cut, i32 tile, i32 row) {
  const i32 x = cut.shift[2], y = cut.shift[1], z = cut.shift[0];
  return {((tile >> 16) << z) + (row >> (x + y)),
          ((tile >> 8 & 255) << y) + (row >> x & ((1 << y) - 1)),
          ((tile & 255) << x) + (row & ((1 << x) - 1))};
}

/// -1 outside a grid of these extents in z, y, x.
__device__ __forceinline__ i32 grid_token(const i32 (&extent)[3], GridPoint at) {
  if (at.z >= extent[0] || at.y >= extent[1] || at.x >= extent[2]) return -1;
  return (at.z * extent[1] + at.y) * extent[2] + at.x;
}

}  // namespace stof
