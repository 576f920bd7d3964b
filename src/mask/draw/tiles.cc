#include <algorithm>
#include <bit>

#include "core/check.h"
#include "mask/block/pattern.h"
#include "mask/draw/frame.h"
#include "stof/mask_draw.h"

namespace stof::mask {
namespace {

/// What lies under one cell of the picture.
struct CellSum {
  std::int64_t full = 0, partial = 0;
  double density = 0;  ///< summed over the partial tiles
};

Colour colour_of(const CellSum& sum, std::int64_t tiles) {
  if (sum.full + sum.partial == 0) return kHidden;
  const auto partial = static_cast<double>(sum.partial), full = static_cast<double>(sum.full);
  const Colour shade = sum.partial == 0 ? kVisible : mix(kSparse, kDense, sum.density / partial);
  return mix(kHidden, mix(shade, kVisible, full / (full + partial)),
             (full + partial) / static_cast<double>(tiles));
}

/// Sums of one pattern's tiles over the cells of a picture; tiles outside are left out.
class TileGrid {
 public:
  TileGrid(const BlockMask& mask, const AxisPair& axes)
      : mask_(mask), axes_(axes), sums_(static_cast<std::size_t>(axes.q.cells * axes.k.cells)) {
    for (const OuterBitmap& bitmap : mask.bitmaps()) {
      std::int64_t bits = 0;
      for (std::uint64_t word : bitmap) bits += std::popcount(word);
      visible_.push_back(bits);
    }
  }

  void add(const BlockPattern& pattern) {
    for (std::int64_t q = 0; q < axes_.q.cells; ++q)
      for (std::int64_t row = first_tile(axes_.q, q); row < first_tile(axes_.q, q + 1); ++row)
        add_row(pattern, row, sums_.data() + q * axes_.k.cells);
  }

  std::vector<Colour> colours() const {
    std::vector<Colour> cells;
    for (std::int64_t q = 0; q < axes_.q.cells; ++q)
      for (std::int64_t k = 0; k < axes_.k.cells; ++k)
        cells.push_back(colour_of(sums_[static_cast<std::size_t>(q * axes_.k.cells + k)],
                                  (first_tile(axes_.q, q + 1) - first_tile(axes_.q, q)) *
                                      (first_tile(axes_.k, k + 1) - first_tile(axes_.k, k))));
    return cells;
  }

  CellSum total() const {
    CellSum all;
    for (const CellSum& sum : sums_) {
      all.full += sum.full;
      all.partial += sum.partial;
    }
    return all;
  }

 private:
  static std::int64_t first_tile(const Axis& axis, std::int64_t cell) {
    const std::int64_t begin = axis.begin / kOuterTile, end = axis.end / kOuterTile;
    return begin + cell * (end - begin) / axis.cells;
  }

  /// The cell that holds a tile column of the picture.
  std::int64_t cell_of(std::int64_t col) const {
    const std::int64_t begin = axes_.k.begin / kOuterTile, end = axes_.k.end / kOuterTile;
    return ((col - begin + 1) * axes_.k.cells - 1) / (end - begin);
  }

  void add_row(const BlockPattern& pattern, std::int64_t row, CellSum* sums) const {
    const std::int64_t col_begin = axes_.k.begin / kOuterTile, col_end = axes_.k.end / kOuterTile;
    for (const FullRun& run : full_runs_of_row(pattern, row)) {
      std::int64_t col = std::max<std::int64_t>(run.begin, col_begin);
      const std::int64_t end = std::min<std::int64_t>(run.end, col_end);
      while (col < end) {
        const std::int64_t cell = cell_of(col);
        const std::int64_t next = std::min(end, first_tile(axes_.k, cell + 1));
        sums[cell].full += next - col;
        col = next;
      }
    }
    const std::int64_t num_rows = tile_extent(row, mask_.shape().seq_q);
    for (const PartialTile& tile : partial_of_row(pattern, row)) {
      if (tile.col < col_begin || tile.col >= col_end) continue;
      CellSum& sum = sums[cell_of(tile.col)];
      const std::int64_t area = num_rows * tile_extent(tile.col, mask_.shape().seq_kv);
      sum.partial += 1;
      sum.density += static_cast<double>(visible_[static_cast<std::size_t>(tile.bitmap)]) /
                     static_cast<double>(area);
    }
  }

  const BlockMask& mask_;
  const AxisPair& axes_;
  std::vector<std::int64_t> visible_;  ///< pairs of each bitmap
  std::vector<CellSum> sums_;
};

std::int64_t round_up(std::int64_t token) {
  return (token + kOuterTile - 1) / kOuterTile * kOuterTile;
}

}  // namespace

Image draw_tiles(const BlockMask& mask, const DrawOptions& options) {
  DrawRegion region = resolve_region(options, mask.shape());
  region.q_begin = region.q_begin / kOuterTile * kOuterTile;
  region.k_begin = region.k_begin / kOuterTile * kOuterTile;
  region.q_end = round_up(region.q_end);
  region.k_end = round_up(region.k_end);
  const AxisPair axes = fit_axes(region, kOuterTile, options.max_pixels);
  TileGrid grid(mask, axes);
  grid.add(mask.pattern(mask.pattern_index(options.batch, options.head)));

  const CellSum total = grid.total();
  const std::int64_t tiles =
      (region.q_end - region.q_begin) / kOuterTile * ((region.k_end - region.k_begin) / kOuterTile);
  return draw_frame(
      axes, grid.colours(), options.title,
      {{kVisible, fmt::format("full {}", total.full)},
       {mix(kSparse, kDense, 0.5), fmt::format("partial {} (darker: denser)", total.partial)},
       {kHidden, fmt::format("empty {}", tiles - total.full - total.partial)}});
}

}  // namespace stof::mask
