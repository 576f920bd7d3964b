#pragma once
// Frame: the matrix of a picture with its title, axes and legend around it.

#include <cstdint>
#include <string>
#include <vector>

#include "mask/draw/canvas.h"
#include "stof/mask_draw.h"

namespace stof::mask {

/// One side of the matrix: tokens [begin, end) drawn as `cells` cells of `cell_pixels` pixels each.
struct Axis {
  std::int64_t begin = 0, end = 0;
  std::int64_t cells = 0;
  std::int64_t cell_pixels = 1;

  std::int64_t pixels() const { return cells * cell_pixels; }
  /// First token of a cell; cells differ by at most one token.
  std::int64_t first_token(std::int64_t cell) const { return begin + cell * (end - begin) / cells; }
};

/// Two axes of the same scale with at most max_pixels on the longer side: whole enlargements of
/// cells of `unit` tokens, or several such cells a pixel.
struct AxisPair {
  Axis q, k;
};
AxisPair fit_axes(const DrawRegion& region, std::int64_t unit, std::int64_t max_pixels);

/// The region with its ends resolved; checks it, batch, head and max_pixels against the shape.
DrawRegion resolve_region(const DrawOptions& options, const ScoreShape& shape);

struct LegendEntry {
  Colour colour;
  std::string text;
};

/// cells[q * axes.k.cells + k]
Image draw_frame(const AxisPair& axes, const std::vector<Colour>& cells, const std::string& title,
                 const std::vector<LegendEntry>& legend);

}  // namespace stof::mask
