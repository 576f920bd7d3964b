// Pictures of stof/stof.h: as text and as PNG.

#include <algorithm>
#include <cstdlib>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/mask.h"
#include "capi/sized.h"
#include "core/bits.h"
#include "mask/draw/exact_class.h"
#include "stof/block_mask.h"
#include "stof/mask_draw.h"

namespace stof::capi {
namespace {

void check_below(const char* name, std::int64_t value, std::int64_t extent) {
  STOF_CHECK(value >= 0 && value < extent, kInvalidArgument, "{}: expected 0 to {}, got {}", name,
             extent - 1, value);
}

std::string draw_text(const mask::Mask& mask, const mask::ScoreShape& shape,
                      const stof_draw_options& options) {
  constexpr std::int64_t kDefaultCells = 64, kMaxCells = 4096;
  STOF_CHECK(options.reserved == 0, kInvalidArgument, "options.reserved: expected 0, got {}",
             options.reserved);
  check_below("options.batch", options.batch, shape.batch);
  check_below("options.head", options.head, shape.num_heads);
  STOF_CHECK(options.max_cells >= 0 && options.max_cells <= kMaxCells, kInvalidArgument,
             "options.max_cells: expected 1 to {}, or 0 for {}, got {}", kMaxCells, kDefaultCells,
             options.max_cells);
  const std::int64_t max_cells = options.max_cells == 0 ? kDefaultCells : options.max_cells;
  const std::int64_t cell =
      std::max<std::int64_t>(1, ceil_div(std::max(shape.seq_q, shape.seq_kv), max_cells));
  std::string text;
  for (std::int64_t q = 0; q < shape.seq_q; q += cell) {
    for (std::int64_t k = 0; k < shape.seq_kv; k += cell)
      text += mask::symbol(mask::exact_class(
          mask, options.batch, options.head,
          {q, std::min(q + cell, shape.seq_q), k, std::min(k + cell, shape.seq_kv)}));
    text += '\n';
  }
  return text;
}

/// An end of 0 is the end of the sequence.
std::int64_t end_of(std::int64_t end) { return end == 0 ? -1 : end; }

mask::Image draw_image(const stof_mask* mask, const stof_score_shape* shape,
                       const stof_png_options& options) {
  const mask::Mask& drawn = required(mask, "mask").mask;
  const stof_score_shape given = read_sized(shape, "shape");
  const mask::Alignment alignment = alignment_of(given.alignment, "shape.alignment");
  mask::DrawOptions draw;
  draw.batch = options.batch;
  draw.head = options.head;
  draw.region = {options.q_begin, end_of(options.q_end), options.k_begin, end_of(options.k_end)};
  if (options.max_pixels != 0) draw.max_pixels = options.max_pixels;
  if (options.title != nullptr) draw.title = options.title;
  STOF_CHECK(options.kind == STOF_DRAW_PAIRS || options.kind == STOF_DRAW_TILES, kInvalidArgument,
             "options.kind: expected {} (STOF_DRAW_PAIRS) or {} (STOF_DRAW_TILES), got {}",
             static_cast<int>(STOF_DRAW_PAIRS), static_cast<int>(STOF_DRAW_TILES), options.kind);
  return options.kind == STOF_DRAW_PAIRS
             ? mask::draw_elements(drawn, shape_of(given), alignment, draw)
             : mask::draw_tiles(mask::build_block_mask(drawn, shape_of(given), alignment), draw);
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_mask_draw_text(const stof_mask* mask, const stof_score_shape* shape,
                                const stof_draw_options* options, char** text) {
  return make_text(text, "text", [&] {
    const stof_draw_options given = read_sized_or_default(options, "options");
    return draw_text(bound_to(mask, shape), shape_of(read_sized(shape, "shape")), given);
  });
}

stof_status stof_mask_draw_png(const stof_mask* mask, const stof_score_shape* shape,
                               const stof_png_options* options, unsigned char** png,
                               size_t* num_bytes) {
  return guard([&] {
    unsigned char*& out = required(png, "png");
    std::size_t& size = required(num_bytes, "num_bytes");
    const std::string bytes =
        stof::mask::encode_png(draw_image(mask, shape, read_sized_or_default(options, "options")));
    auto* const copy = static_cast<unsigned char*>(std::malloc(bytes.size()));
    STOF_CHECK(copy != nullptr, kOutOfMemory, "no memory for a picture of {} bytes", bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy);
    out = copy;
    size = bytes.size();
  });
}

void stof_bytes_release(unsigned char* bytes) { std::free(bytes); }

}  // extern "C"
