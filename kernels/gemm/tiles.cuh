#pragma once
// In what order blocks take the tiles of a product.

#include "ptx/types.cuh"

namespace stof {

struct TilePlace {
  i32 m, n;
};

/// Bands of params.band row tiles; inside a band the row tiles of one column tile follow each other, so
/// that blocks running together share rows of W and, band by band, rows of x.
template <class Params>
__device__ __forceinline__ TilePlace tile_place(const Params& params, i32 index) {
  const i32 band_tiles = params.band * params.tiles_n;
  const i32 band = index / band_tiles, inside = index - band * band_tiles;
  const i32 first = band * params.band;
  const i32 height = min(params.band, params.tiles_m - first);
  const i32 n = inside / height;
  return {first + inside - n * height, n};
}

}  // namespace stof
