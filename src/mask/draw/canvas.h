#pragma once
// Canvas: the few drawing operations that pictures of masks need.

#include <cstdint>
#include <string>

#include "stof/mask_draw.h"

namespace stof::mask {

struct Colour {
  std::uint8_t r, g, b;
};

/// a at share 0, b at share 1, in between by channel.
Colour mix(Colour a, Colour b, double share);

/// Blue and orange stay apart under every common colour blindness; their lightness differs too
/// (Okabe and Ito 2008, "Color Universal Design").
inline constexpr Colour kPaper{255, 255, 255};
inline constexpr Colour kInk{51, 51, 51};
inline constexpr Colour kHidden{240, 241, 243};
inline constexpr Colour kVisible{0, 90, 156};
inline constexpr Colour kSparse{253, 224, 160};  ///< a partial tile with hardly anything visible
inline constexpr Colour kDense{213, 94, 0};      ///< one with nearly everything visible

class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height, Colour background = kPaper);

  /// The part of the rectangle that lies on the canvas.
  void fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height, Colour colour);
  /// Only the border, one pixel wide.
  void outline(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
               Colour colour);
  /// ASCII; (x, y) is the top left corner. `scale` enlarges the font of about 7 pixels.
  void text(std::int64_t x, std::int64_t y, const std::string& line, int scale, Colour colour);
  void copy(const Image& source, std::int64_t x, std::int64_t y);

  Image release() { return std::move(image_); }

 private:
  Image image_;
};

/// Pixels that a line of text takes; its height is text_height(scale).
std::int64_t text_width(const std::string& line, int scale);
constexpr std::int64_t text_height(int scale) { return 8 * scale; }

}  // namespace stof::mask
