#pragma once
// Tokens of a grid sorted into tiles that are boxes of the grid, and the plan of a neighbourhood
// mask in that order: fewer tiles are touched, because neighbours in every dimension lie together.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mask/grid_axis.h"
#include "stof/mask_plan.h"

namespace stof::plan {

/// Extents of a box in z, y, x; powers of two.
using GridTile = std::array<std::int32_t, mask::kGridDims>;

/// One side (queries or keys) of a grid cut into tiles. Position p is place p % tile_size() of tile
/// p / tile_size(); tiles lie one after the other with x fastest, and so do the places of a tile.
/// Tiles that reach past the grid have places without a token.
struct GridTiling {
  std::array<std::int64_t, mask::kGridDims> extent{1, 1, 1};
  GridTile tile{1, 1, 1};

  std::int64_t tiles(std::size_t d) const;  ///< along dimension d
  std::int64_t num_tiles() const;
  std::int64_t tile_size() const;
  std::int64_t num_positions() const { return num_tiles() * tile_size(); }
  /// -1 where the place holds no token.
  std::int64_t token(std::int64_t position) const;
  std::int64_t position(std::int64_t token) const;
  /// "1x8x8"
  std::string name() const;
};

/// A neighbourhood mask, and how its queries and keys are cut.
struct GridOrder {
  mask::GridAxes axes;
  GridTiling q, kv;
  /// "grid1x8x8", or "grid2x8x8_1x8x8" where keys are cut differently.
  std::string name() const;
};

/// Tiles along a dimension that kernels can address, and the largest extent of one.
inline constexpr std::int64_t kMaxGridTiles = 256, kMaxGridTile = 64;

/// Cuts a grid so that a plan touches the fewest tiles. All of it follows from counts per
/// dimension.
class GridTiler {
 public:
  explicit GridTiler(const mask::GridAxes& axes) : axes_(axes) {}

  /// Nothing where tile sizes are no powers of two, or where tiles of that size would be more than
  /// kMaxGridTiles along a dimension.
  std::optional<GridOrder> best(std::int64_t tile_q, std::int64_t tile_kv);

 private:
  struct Pairs {
    double touched = 0, full = 0;
  };
  const Pairs& pairs(std::size_t d, std::int32_t tile_q, std::int32_t tile_kv);

  mask::GridAxes axes_;
  std::map<std::array<std::int32_t, 3>, Pairs> known_;  ///< by dimension and both extents
};

/// Full and partial key tiles of one query tile.
struct GridTileCount {
  std::int64_t full = 0, partial = 0;
};
std::vector<GridTileCount> count_tiles(const GridOrder& order);

/// The plan in position space: shape counts positions, and what a query place without a token
/// sees means nothing. No run crosses the end of a line of key tiles. Built from the dimensions,
/// not pair by pair: a payload is the product of three small matrices and shared by all tiles that
/// have the same three. config's tile_q and tile_kv must be the order's.
MaskPlan build_grid_plan(const GridOrder& order, std::int64_t batch, std::int64_t num_heads,
                         const PlanConfig& config);

}  // namespace stof::plan
