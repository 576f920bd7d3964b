#include <algorithm>
#include <bit>

#include "mask/block/row_bits.h"
#include "mask/draw/frame.h"
#include "stof/mask_draw.h"

namespace stof::mask {
namespace {

/// Counts the visible pairs of rectangles of one (batch, head).
class PairCounter {
 public:
  PairCounter(const Mask& mask, std::int64_t b, std::int64_t h, std::int64_t seq_kv)
      : mask_(mask), b_(b), h_(h), seq_kv_(seq_kv) {}

  /// Halves what is neither full nor empty, so that cost follows the mask's edges.
  std::int64_t count(const TileRect& rect) const {
    const std::int64_t rows = rect.q_end - rect.q_begin, cols = rect.k_end - rect.k_begin;
    switch (mask_.classify(b_, h_, rect)) {
      case TileClass::kEmpty:
        return 0;
      case TileClass::kFull:
        return rows * cols;
      case TileClass::kPartial:
        break;
    }
    if (rows <= kOuterTile && cols <= kOuterTile) return count_bits(rect);
    TileRect first = rect, second = rect;
    if (rows >= cols) {
      first.q_end = second.q_begin = rect.q_begin + rows / 2;
    } else {
      first.k_end = second.k_begin = rect.k_begin + cols / 2;
    }
    return count(first) + count(second);
  }

 private:
  std::int64_t count_bits(const TileRect& rect) const {
    std::int64_t pairs = 0;
    for (std::int64_t q = rect.q_begin; q < rect.q_end; ++q)
      pairs += std::popcount(
          row_bits_within(mask_, b_, h_, q, rect.k_begin, rect.k_end - rect.k_begin, seq_kv_));
    return pairs;
  }

  const Mask& mask_;
  const std::int64_t b_, h_, seq_kv_;
};

}  // namespace

Image draw_elements(const Mask& mask, const ScoreShape& shape, Alignment alignment,
                    const DrawOptions& options) {
  const DrawRegion region = resolve_region(options, shape);
  const Mask bound = mask.bind(shape, alignment);
  const PairCounter counter(bound, options.batch, options.head, shape.seq_kv);
  const AxisPair axes = fit_axes(region, 1, options.max_pixels);
  std::vector<Colour> cells;
  cells.reserve(static_cast<std::size_t>(axes.q.cells * axes.k.cells));
  for (std::int64_t q = 0; q < axes.q.cells; ++q) {
    for (std::int64_t k = 0; k < axes.k.cells; ++k) {
      const TileRect rect{axes.q.first_token(q), axes.q.first_token(q + 1), axes.k.first_token(k),
                          axes.k.first_token(k + 1)};
      const auto area =
          static_cast<double>((rect.q_end - rect.q_begin) * (rect.k_end - rect.k_begin));
      cells.push_back(mix(kHidden, kVisible, static_cast<double>(counter.count(rect)) / area));
    }
  }
  return draw_frame(axes, cells, options.title, {{kVisible, "visible"}, {kHidden, "hidden"}});
}

}  // namespace stof::mask
