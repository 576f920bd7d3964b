#include "mask/draw/frame.h"

#include <algorithm>

#include "core/check.h"

namespace stof::mask {
namespace {

constexpr std::int64_t kMargin = 12;
constexpr std::int64_t kTick = 4;      ///< length of a tick mark
constexpr std::int64_t kTickGap = 44;  ///< least distance of two labels, wider than six digits
constexpr std::int64_t kGridFrom = 6;  ///< cells of so many pixels are told apart by thin lines
constexpr int kTitleScale = 2;
constexpr int kLabelScale = 1;

/// Tokens between two labels: a power of two, as tiles and lengths usually are.
std::int64_t tick_step(const Axis& axis) {
  std::int64_t step = 1;
  while (step * axis.pixels() < kTickGap * (axis.end - axis.begin)) step *= 2;
  return step;
}

struct Tick {
  std::int64_t pixel;  ///< from the matrix's edge, middle of the token's cell
  std::string label;
};

std::vector<Tick> ticks_of(const Axis& axis) {
  const std::int64_t step = tick_step(axis), length = axis.end - axis.begin;
  std::vector<Tick> ticks;
  for (std::int64_t t = (axis.begin + step - 1) / step * step; t < axis.end; t += step)
    ticks.push_back({((t - axis.begin) * 2 + 1) * axis.pixels() / (2 * length), std::to_string(t)});
  return ticks;
}

std::int64_t widest_label(const std::vector<Tick>& ticks) {
  std::int64_t width = 0;
  for (const Tick& tick : ticks) width = std::max(width, text_width(tick.label, kLabelScale));
  return width;
}

/// A label of at most `width` pixels, its end cut where it is longer.
std::string shortened(const std::string& line, int scale, std::int64_t width) {
  if (text_width(line, scale) <= width) return line;
  std::string cut = line;
  while (!cut.empty() && text_width(cut + "...", scale) > width) cut.pop_back();
  return cut + "...";
}

void draw_matrix(Canvas& canvas, std::int64_t x, std::int64_t y, const AxisPair& axes,
                 const std::vector<Colour>& cells) {
  const std::int64_t size = axes.q.cell_pixels;
  const std::int64_t line = size >= kGridFrom ? 1 : 0;
  for (std::int64_t q = 0; q < axes.q.cells; ++q)
    for (std::int64_t k = 0; k < axes.k.cells; ++k)
      canvas.fill(x + k * size, y + q * size, size - line, size - line,
                  cells[static_cast<std::size_t>(q * axes.k.cells + k)]);
  canvas.outline(x - 1, y - 1, axes.k.pixels() - line + 2, axes.q.pixels() - line + 2, kInk);
}

void draw_legend(Canvas& canvas, std::int64_t x, std::int64_t y,
                 const std::vector<LegendEntry>& legend) {
  constexpr std::int64_t kSwatch = 10;
  for (const LegendEntry& entry : legend) {
    canvas.fill(x, y - 2, kSwatch, kSwatch, entry.colour);
    canvas.outline(x, y - 2, kSwatch, kSwatch, kInk);
    canvas.text(x + kSwatch + 5, y, entry.text, kLabelScale, kInk);
    x += kSwatch + 5 + text_width(entry.text, kLabelScale) + 16;
  }
}

std::int64_t legend_width(const std::vector<LegendEntry>& legend) {
  std::int64_t width = 0;
  for (const LegendEntry& entry : legend) width += 31 + text_width(entry.text, kLabelScale);
  return width;
}

void check_range(const char* axis, std::int64_t begin, std::int64_t end, std::int64_t length) {
  STOF_CHECK(begin >= 0 && begin < end && end <= length, kInvalidArgument,
             "region: {}: expected 0 <= begin < end <= {}, got [{}, {})", axis, length, begin, end);
}

void check_index(const char* option, std::int64_t index, std::int64_t extent) {
  STOF_CHECK(index >= 0 && index < extent, kInvalidArgument, "{}: expected 0 to {}, got {}", option,
             extent - 1, index);
}

}  // namespace

AxisPair fit_axes(const DrawRegion& region, std::int64_t unit, std::int64_t max_pixels) {
  const auto cells = [unit](std::int64_t begin, std::int64_t end) { return (end - begin) / unit; };
  AxisPair axes{{region.q_begin, region.q_end, cells(region.q_begin, region.q_end), 1},
                {region.k_begin, region.k_end, cells(region.k_begin, region.k_end), 1}};
  const std::int64_t longest = std::max(axes.q.cells, axes.k.cells);
  for (Axis* axis : {&axes.q, &axes.k}) {
    if (longest > max_pixels) {
      axis->cells = std::max<std::int64_t>(1, axis->cells * max_pixels / longest);
    } else {
      axis->cell_pixels = max_pixels / longest;
    }
  }
  return axes;
}

DrawRegion resolve_region(const DrawOptions& options, const ScoreShape& shape) {
  DrawRegion region = options.region;
  if (region.q_end == -1) region.q_end = shape.seq_q;
  if (region.k_end == -1) region.k_end = shape.seq_kv;
  check_range("queries", region.q_begin, region.q_end, shape.seq_q);
  check_range("keys", region.k_begin, region.k_end, shape.seq_kv);
  check_index("batch", options.batch, shape.batch);
  check_index("head", options.head, shape.num_heads);
  STOF_CHECK(options.max_pixels >= 64 && options.max_pixels <= 4096, kInvalidArgument,
             "max_pixels: expected 64 to 4096, got {}", options.max_pixels);
  return region;
}

Image draw_frame(const AxisPair& axes, const std::vector<Colour>& cells, const std::string& title,
                 const std::vector<LegendEntry>& legend) {
  const std::vector<Tick> q_ticks = ticks_of(axes.q), k_ticks = ticks_of(axes.k);
  const std::int64_t title_height = title.empty() ? 0 : text_height(kTitleScale) + 8;
  const std::int64_t label_height = text_height(kLabelScale);
  const std::int64_t x =
      kMargin + std::max(widest_label(q_ticks), text_width("query", 1)) + kTick + 4;
  const std::int64_t y = kMargin + title_height + label_height + 6;
  const std::int64_t bottom = y + axes.q.pixels();
  const std::int64_t right = std::max({x + axes.k.pixels(), x + legend_width(legend)});
  Canvas canvas(right + kMargin + 8, bottom + kTick + 3 * label_height + 14 + kMargin);

  canvas.text(x, kMargin, shortened(title, kTitleScale, right - x), kTitleScale, kInk);
  draw_matrix(canvas, x, y, axes, cells);
  canvas.text(kMargin, y - label_height - 6, "query", kLabelScale, kInk);
  for (const Tick& tick : q_ticks) {
    canvas.fill(x - 1 - kTick, y + tick.pixel, kTick, 1, kInk);
    canvas.text(x - 4 - kTick - text_width(tick.label, kLabelScale), y + tick.pixel - 3, tick.label,
                kLabelScale, kInk);
  }
  for (const Tick& tick : k_ticks) {
    canvas.fill(x + tick.pixel, bottom + 1, 1, kTick, kInk);
    canvas.text(x + tick.pixel - text_width(tick.label, kLabelScale) / 2, bottom + kTick + 4,
                tick.label, kLabelScale, kInk);
  }
  canvas.text(kMargin, bottom + kTick + 4, "key", kLabelScale, kInk);
  draw_legend(canvas, x, bottom + kTick + label_height + 16, legend);
  return canvas.release();
}

Image beside(const Image& left, const Image& right) {
  Canvas canvas(left.width + right.width, std::max(left.height, right.height));
  canvas.copy(left, 0, 0);
  canvas.copy(right, left.width, 0);
  return canvas.release();
}

}  // namespace stof::mask
