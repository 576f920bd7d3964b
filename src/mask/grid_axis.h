#pragma once
// What neighbourhood() sees along one dimension of its grid: the mask is the product of up to
// three.
//
// A coordinate c lies in
//   tile u    = floor((c + shift mod tile) / tile), of N tiles in all
//   group g   = u mod dilation, place p = u div dilation, of n = ceil((N - g) / dilation) places
//   start(u)  = clamp(p - floor(kernel / 2), 0, max(n - kernel, 0))
// q sees k iff k's tile is in the same group as q's, at a place in [start, start + kernel). An even
// kernel reaches one further back than forward. A shift moves the borders between tiles back by
// that much; nothing wraps around, so the first and last tile may be cut.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "mask/interval.h"
#include "stof/mask.h"

namespace stof::mask {

inline constexpr std::size_t kGridDims = 3;

/// Inclusive coordinates, or tiles.
struct AxisRange {
  std::int64_t first, last;
};

/// One dimension of a grid.
class GridAxis {
 public:
  GridAxis() = default;
  GridAxis(std::int64_t extent, std::int64_t kernel, std::int64_t dilation, std::int64_t tile,
           std::int64_t shift)
      : extent_(extent), tile_(tile), shift_(floor_mod(shift, tile)) {
    num_tiles_ = tile_of(extent - 1) + 1;
    // More would change nothing, and products stay small.
    dilation_ = std::min(dilation, num_tiles_);
    kernel_ = std::min(kernel, (num_tiles_ + dilation_ - 1) / dilation_);
  }

  std::int64_t extent() const { return extent_; }

  bool sees(std::int64_t q, std::int64_t k) const {
    const std::int64_t u = tile_of(q), v = tile_of(k);
    const AxisRange places = window(u);
    return u % dilation_ == v % dilation_ && places.first <= v / dilation_ &&
           v / dilation_ <= places.last;
  }

  TileClass classify(AxisRange q, AxisRange k) const {
    const AxisRange u{tile_of(q.first), tile_of(q.last)}, v{tile_of(k.first), tile_of(k.last)};
    if (!any_sees(u, v)) return TileClass::kEmpty;
    // Neighbouring tiles are in different groups, unless there is one group only.
    const bool full = dilation_ == 1
                          ? window(u.last).first <= v.first && v.last <= window(u.first).last
                          : u.first == u.last && v.first == v.last;
    return full ? TileClass::kFull : TileClass::kPartial;
  }

  /// Coordinates that q sees, where the dilation is 1.
  AxisRange seen(std::int64_t q) const {
    const AxisRange tiles = window(tile_of(q));
    return {tiles.first * tile_ - shift_, (tiles.last + 1) * tile_ - shift_ - 1};
  }
  bool contiguous() const { return dilation_ == 1; }

 private:
  std::int64_t tile_of(std::int64_t c) const { return (c + shift_) / tile_; }

  /// Places inside u's group that u sees; both ends grow with u. Never empty.
  AxisRange window(std::int64_t u) const {
    const std::int64_t places = (num_tiles_ - u % dilation_ + dilation_ - 1) / dilation_;
    const std::int64_t start = std::clamp<std::int64_t>(
        u / dilation_ - kernel_ / 2, 0, std::max<std::int64_t>(places - kernel_, 0));
    return {start, std::min(start + kernel_, places) - 1};
  }

  bool any_sees(AxisRange u, AxisRange v) const {
    if (u.first <= v.last && v.first <= u.last) return true;  // a tile sees itself
    const std::int64_t reach = (kernel_ - 1) * dilation_;
    if (v.first > u.last + reach || u.first > v.last + reach) return false;
    const std::int64_t groups = std::min(dilation_, u.last - u.first + 1);
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t u_first = u.first + i, group = u_first % dilation_;
      const std::int64_t u_last = u.last - floor_mod(u.last - group, dilation_);
      const std::int64_t p_first =
          v.first > group ? (v.first - group + dilation_ - 1) / dilation_ : 0;
      const std::int64_t p_last = floor_div(v.last - group, dilation_);
      // The windows of u_first .. u_last in this group join to one.
      if (p_first <= p_last && window(u_first).first <= p_last && p_first <= window(u_last).last)
        return true;
    }
    return false;
  }

  std::int64_t extent_ = 1, tile_ = 1, shift_ = 0, num_tiles_ = 1, dilation_ = 1, kernel_ = 1;
};

/// Dimensions z, y, x of a token grid, x fastest; leading ones of extent 1 where it has fewer.
using GridAxes = std::array<GridAxis, kGridDims>;

/// The dimensions of a bound mask that is one neighbourhood() over exactly `num_tokens` queries and
/// keys (and no more than all() beside it); nothing for any other mask.
std::optional<GridAxes> neighbourhood_axes(const Mask& bound, std::int64_t num_tokens);

}  // namespace stof::mask
