#pragma once
// How the copy engine sees operands of the Hopper kernel: boxes of 64 columns, swizzled by 128
// bytes.

#include <array>
#include <cstdint>

#include "backend/cuda/driver.h"
#include "plan/grid_order.h"
#include "stof/tensor.h"

namespace stof::cuda {

/// {head_dim, row in residue, residue, heads, batch} of a view [batch, heads, rows, head_dim], in
/// boxes of `box_rows` rows. Throws Unsupported naming the tensor where its strides or address do
/// not suit.
CUtensorMap make_tensor_map(const TensorView& tensor, const char* name, std::int64_t box_rows,
                            std::int64_t step);

/// Extents and strides in elements, and the box, fastest first.
struct MapLayout {
  std::array<std::int64_t, 5> extents, strides, box;
};

/// {head_dim, x, y, z, heads} of one batch entry of such a view whose rows are a grid's tokens, in
/// boxes of the tiling's tiles cut to `box_rows` rows.
MapLayout grid_layout(const TensorView& tensor, std::int64_t box_rows,
                      const plan::GridTiling& tiling);
CUtensorMap make_grid_map(const TensorView& tensor, const char* name, std::int64_t box_rows,
                          const plan::GridTiling& tiling, std::int64_t batch);

}  // namespace stof::cuda
