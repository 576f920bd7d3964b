#include "plan/grid_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "core/bits.h"

namespace stof::plan {
namespace {

using mask::AxisRange;
using mask::GridAxis;
using mask::kGridDims;
using mask::TileClass;

/// The coordinates of tile `tile` that lie in the grid.
AxisRange inside(const GridAxis& axis, std::int64_t tile, std::int64_t tile_extent) {
  return {tile * tile_extent, std::min((tile + 1) * tile_extent, axis.extent()) - 1};
}

/// Every way to write `size`, a power of two, as extents of a box, each at most kMaxGridTile.
std::vector<GridTile> boxes_of(std::int64_t size) {
  std::vector<GridTile> boxes;
  for (std::int64_t z = 1; z <= std::min(size, kMaxGridTile); z *= 2)
    for (std::int64_t y = 1; y <= std::min(size / z, kMaxGridTile); y *= 2)
      if (size / z / y <= kMaxGridTile)
        boxes.push_back({static_cast<std::int32_t>(z), static_cast<std::int32_t>(y),
                         static_cast<std::int32_t>(size / z / y)});
  return boxes;
}

bool is_addressable(const mask::GridAxes& axes, const GridTile& tile) {
  for (std::size_t d = 0; d < kGridDims; ++d)
    if (ceil_div(axes[d].extent(), tile[d]) > kMaxGridTiles) return false;
  return true;
}

GridTiling tiling_of(const mask::GridAxes& axes, const GridTile& tile) {
  GridTiling tiling;
  for (std::size_t d = 0; d < kGridDims; ++d) tiling.extent[d] = axes[d].extent();
  tiling.tile = tile;
  return tiling;
}

}  // namespace

std::int64_t GridTiling::tiles(std::size_t d) const { return ceil_div(extent[d], tile[d]); }

std::int64_t GridTiling::num_tiles() const { return tiles(0) * tiles(1) * tiles(2); }

std::int64_t GridTiling::tile_size() const { return std::int64_t{tile[0]} * tile[1] * tile[2]; }

std::int64_t GridTiling::token(std::int64_t position) const {
  std::int64_t number = position / tile_size(), place = position % tile_size();
  std::int64_t token = 0, stride = 1;
  for (std::size_t d = kGridDims; d-- > 0;) {
    const std::int64_t at = number % tiles(d) * tile[d] + place % tile[d];
    if (at >= extent[d]) return -1;
    token += at * stride;
    stride *= extent[d];
    number /= tiles(d);
    place /= tile[d];
  }
  return token;
}

std::int64_t GridTiling::position(std::int64_t token) const {
  std::int64_t number = 0, place = 0, number_stride = 1, place_stride = 1;
  for (std::size_t d = kGridDims; d-- > 0;) {
    const std::int64_t at = token % extent[d];
    number += at / tile[d] * number_stride;
    place += at % tile[d] * place_stride;
    number_stride *= tiles(d);
    place_stride *= tile[d];
    token /= extent[d];
  }
  return number * tile_size() + place;
}

std::string GridTiling::name() const { return fmt::format("{}x{}x{}", tile[0], tile[1], tile[2]); }

std::string GridOrder::name() const {
  return q.tile == kv.tile ? fmt::format("grid{}", q.name())
                           : fmt::format("grid{}_{}", q.name(), kv.name());
}

const GridTiler::Pairs& GridTiler::pairs(std::size_t d, std::int32_t tile_q, std::int32_t tile_kv) {
  const auto [at, is_new] = known_.try_emplace({static_cast<std::int32_t>(d), tile_q, tile_kv});
  if (!is_new) return at->second;
  const GridAxis& axis = axes_[d];
  const std::int64_t q_tiles = ceil_div(axis.extent(), tile_q);
  const std::int64_t kv_tiles = ceil_div(axis.extent(), tile_kv);
  for (std::int64_t q = 0; q < q_tiles; ++q)
    for (std::int64_t k = 0; k < kv_tiles; ++k) {
      const AxisRange keys = inside(axis, k, tile_kv);
      const TileClass found = axis.classify(inside(axis, q, tile_q), keys);
      at->second.touched += found != TileClass::kEmpty;
      at->second.full += found == TileClass::kFull && keys.last - keys.first + 1 == tile_kv;
    }
  return at->second;
}

std::optional<GridOrder> GridTiler::best(std::int64_t tile_q, std::int64_t tile_kv) {
  if (!std::has_single_bit(static_cast<std::uint64_t>(tile_q)) ||
      !std::has_single_bit(static_cast<std::uint64_t>(tile_kv)))
    return std::nullopt;
  std::optional<GridOrder> found;
  double best_touched = 0, best_full = 0;
  for (const GridTile& q : boxes_of(tile_q)) {
    if (!is_addressable(axes_, q)) continue;
    for (const GridTile& kv : boxes_of(tile_kv)) {
      if (!is_addressable(axes_, kv)) continue;
      double touched = 1, full = 1;
      for (std::size_t d = 0; d < kGridDims; ++d) {
        touched *= pairs(d, q[d], kv[d]).touched;
        full *= pairs(d, q[d], kv[d]).full;
      }
      if (found && (touched > best_touched || (touched == best_touched && full <= best_full)))
        continue;
      found = GridOrder{axes_, tiling_of(axes_, q), tiling_of(axes_, kv)};
      best_touched = touched;
      best_full = full;
    }
  }
  return found;
}

}  // namespace stof::plan
