#pragma once
// Pictures of masks: by element, and by tile class (full, partial, empty). Queries run downwards,
// keys to the right.

#include <cstdint>
#include <string>
#include <vector>

#include "stof/block_mask.h"
#include "stof/mask.h"

namespace stof::mask {

/// 8-bit RGB, row-major, top row first: 3 * width * height bytes.
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

/// The part of the score matrix to draw, half-open; an end of -1 is the end of the sequence.
struct DrawRegion {
  std::int64_t q_begin = 0, q_end = -1;
  std::int64_t k_begin = 0, k_end = -1;
};

struct DrawOptions {
  std::int64_t batch = 0, head = 0;
  DrawRegion region;
  /// Longest side of the matrix in pixels, without title and ticks; 64 to 4096. A matrix with fewer
  /// cells is enlarged by a whole factor; one with more is averaged down.
  std::int64_t max_pixels = 448;
  /// ASCII; empty draws none.
  std::string title;
};

/// One cell per (query, key) pair, dark where visible. Averages are exact and cost about the number
/// of partial tiles under the region, not its area. Binds the mask to the shape first. Throws
/// InvalidArgument naming the option that does not fit the shape.
Image draw_elements(const Mask& mask, const ScoreShape& shape,
                    Alignment alignment = Alignment::kTopLeft, const DrawOptions& options = {});

/// One cell per 64x64 outer tile that the region touches: full, partial (the denser, the darker)
/// and empty. Throws as draw_elements().
Image draw_tiles(const BlockMask& mask, const DrawOptions& options = {});

/// Two images side by side, tops aligned.
Image beside(const Image& left, const Image& right);

/// The bytes of a PNG file. Throws InvalidArgument for an image of no or more than 32768 pixels a
/// side.
std::string encode_png(const Image& image);

/// The same in a file, all or nothing. Throws Io naming the path.
void save_png(const Image& image, const std::string& path);

}  // namespace stof::mask
