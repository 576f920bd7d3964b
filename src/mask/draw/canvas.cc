#include "mask/draw/canvas.h"

#include <stb/stb_easy_font.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace stof::mask {
namespace {

/// Only printable ASCII has glyphs.
std::string drawable(const std::string& line) {
  std::string out = line;
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

struct Vertex {  // as stb_easy_font_print() writes them
  float x, y, z;
  std::uint32_t colour;
};

}  // namespace

Colour mix(Colour a, Colour b, double share) {
  const double s = std::clamp(share, 0.0, 1.0);
  const auto channel = [s](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * s));
  };
  return {channel(a.r, b.r), channel(a.g, b.g), channel(a.b, b.b)};
}

Canvas::Canvas(std::int64_t width, std::int64_t height, Colour background) {
  image_.width = width;
  image_.height = height;
  image_.rgb.resize(static_cast<std::size_t>(3 * width * height));
  fill(0, 0, width, height, background);
}

void Canvas::fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                  Colour colour) {
  const std::int64_t x_begin = std::max<std::int64_t>(x, 0);
  const std::int64_t x_end = std::min(x + width, image_.width);
  const std::int64_t y_begin = std::max<std::int64_t>(y, 0);
  const std::int64_t y_end = std::min(y + height, image_.height);
  for (std::int64_t row = y_begin; row < y_end; ++row) {
    for (std::int64_t col = x_begin; col < x_end; ++col) {
      std::uint8_t* pixel = image_.rgb.data() + 3 * (row * image_.width + col);
      pixel[0] = colour.r;
      pixel[1] = colour.g;
      pixel[2] = colour.b;
    }
  }
}

void Canvas::outline(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                     Colour colour) {
  fill(x, y, width, 1, colour);
  fill(x, y + height - 1, width, 1, colour);
  fill(x, y, 1, height, colour);
  fill(x + width - 1, y, 1, height, colour);
}

void Canvas::text(std::int64_t x, std::int64_t y, const std::string& line, int scale,
                  Colour colour) {
  std::string glyphs = drawable(line);
  // A glyph has at most 12 strokes; each is a quad of four vertices, an upright rectangle of whole
  // pixels whose first corner is the top left one and whose third is the opposite one.
  std::vector<Vertex> vertices(glyphs.size() * 12 * 4);
  const int quads = stb_easy_font_print(0, 0, glyphs.data(), nullptr, vertices.data(),
                                        static_cast<int>(vertices.size() * sizeof(Vertex)));
  for (int i = 0; i < quads; ++i) {
    const Vertex& first = vertices[static_cast<std::size_t>(i) * 4];
    const Vertex& opposite = vertices[static_cast<std::size_t>(i) * 4 + 2];
    const auto left = std::lround(first.x), top = std::lround(first.y);
    const auto right = std::lround(opposite.x), bottom = std::lround(opposite.y);
    fill(x + left * scale, y + top * scale, (right - left) * scale, (bottom - top) * scale, colour);
  }
}

void Canvas::copy(const Image& source, std::int64_t x, std::int64_t y) {
  for (std::int64_t row = 0; row < source.height; ++row)
    std::copy_n(source.rgb.data() + 3 * row * source.width, 3 * source.width,
                image_.rgb.data() + 3 * ((y + row) * image_.width + x));
}

std::int64_t text_width(const std::string& line, int scale) {
  std::string glyphs = drawable(line);
  return std::int64_t{stb_easy_font_width(glyphs.data())} * scale;
}

}  // namespace stof::mask
