#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "mask/array_node.h"
#include "mask/draw/canvas.h"
#include "mask/draw/frame.h"
#include "stof/error.h"
#include "stof/mask_draw.h"

namespace stof::mask {
namespace {

using testing::array_mask;
using testing::BoolArray;
using testing::random_array;
using Rgb = std::array<int, 3>;

Rgb rgb_of(Colour c) { return {c.r, c.g, c.b}; }

Rgb pixel_at(const Image& image, std::int64_t x, std::int64_t y) {
  const std::uint8_t* p = image.rgb.data() + 3 * (y * image.width + x);
  return {p[0], p[1], p[2]};
}

std::int64_t count_pixels(const Image& image, Colour colour) {
  std::int64_t count = 0;
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x) count += pixel_at(image, x, y) == rgb_of(colour);
  return count;
}

/// Without the legend's swatches, whose inside is 8x8 pixels.
std::int64_t count_matrix_pixels(const Image& image, Colour colour) {
  return count_pixels(image, colour) - 8 * 8;
}

TEST(DrawElements, PaintsOneCellPerPair) {
  DrawOptions options;
  options.max_pixels = 100;
  const Image image = draw_elements(causal(), {1, 1, 10, 10}, Alignment::kTopLeft, options);
  // Cells of 10 pixels with a line of 1 between them.
  EXPECT_EQ(count_matrix_pixels(image, kVisible), 55 * 9 * 9);
  EXPECT_EQ(count_matrix_pixels(image, kHidden), 45 * 9 * 9);
}

TEST(DrawElements, PutsQueriesDownAndKeysRight) {
  DrawOptions options;
  options.max_pixels = 64;
  const Image image = draw_elements(global(1, 0), {1, 1, 4, 4}, Alignment::kTopLeft, options);
  // Only the first row of cells: every visible pixel outside the legend lies above all hidden ones.
  std::int64_t last_visible = 0, first_hidden = image.height;
  for (std::int64_t y = 0; y < image.height - 40; ++y)
    for (std::int64_t x = 0; x < image.width; ++x) {
      if (pixel_at(image, x, y) == rgb_of(kVisible)) last_visible = y;
      if (pixel_at(image, x, y) == rgb_of(kHidden)) first_hidden = std::min(first_hidden, y);
    }
  EXPECT_LT(last_visible, first_hidden);
}

RC_GTEST_PROP(DrawElements, AveragesExactly, ()) {
  const BoolArray array = random_array();
  DrawOptions options;
  options.max_pixels = 64;
  options.batch = array.shape.batch - 1;
  options.head = array.shape.num_heads - 1;
  const Image image = draw_elements(array_mask(array), array.shape, Alignment::kTopLeft, options);
  const AxisPair axes = fit_axes(resolve_region(options, array.shape), 1, options.max_pixels);
  std::map<Rgb, std::int64_t> expected;
  const std::int64_t size = axes.q.cell_pixels >= 6 ? axes.q.cell_pixels - 1 : axes.q.cell_pixels;
  for (std::int64_t q = 0; q < axes.q.cells; ++q)
    for (std::int64_t k = 0; k < axes.k.cells; ++k) {
      std::int64_t seen = 0, pairs = 0;
      for (std::int64_t i = axes.q.first_token(q); i < axes.q.first_token(q + 1); ++i)
        for (std::int64_t j = axes.k.first_token(k); j < axes.k.first_token(k + 1); ++j) {
          seen += array.at(options.batch, options.head, i, j);
          ++pairs;
        }
      expected[rgb_of(mix(kHidden, kVisible,
                          static_cast<double>(seen) / static_cast<double>(pairs)))] += size * size;
    }
  expected[rgb_of(kVisible)] += 8 * 8;  // the legend
  expected[rgb_of(kHidden)] += 8 * 8;
  for (const auto& [rgb, count] : expected) {
    const Colour colour{static_cast<std::uint8_t>(rgb[0]), static_cast<std::uint8_t>(rgb[1]),
                        static_cast<std::uint8_t>(rgb[2])};
    RC_ASSERT(count_pixels(image, colour) == count);
  }
}

TEST(DrawElements, CostsNoSquareOfALongSequence) {
  constexpr std::int64_t kLength = std::int64_t{1} << 20;  // 2^40 pairs could not be visited
  const Image image = draw_elements(window(256, 256), {1, 1, kLength, kLength});
  EXPECT_GT(count_pixels(image, kHidden), 440 * 440);
}

TEST(DrawTiles, PaintsTheThreeClasses) {
  DrawOptions options;
  options.max_pixels = 80;
  const BlockMask mask = build_block_mask(causal(), {1, 1, 512, 512});
  const Image image = draw_tiles(mask, options);
  const Colour half = mix(kSparse, kDense, 65.0 / 128);  // the diagonal tile of causal
  EXPECT_EQ(count_matrix_pixels(image, kVisible), 28 * 9 * 9);
  EXPECT_EQ(count_matrix_pixels(image, kHidden), 28 * 9 * 9);
  EXPECT_EQ(count_pixels(image, half), 8 * 9 * 9);
}

TEST(DrawTiles, DrawsOnlyTheRegion) {
  DrawOptions options;
  options.max_pixels = 80;
  options.region = {256, 512, 0, 200};  // below the diagonal; 200 is widened to a whole tile
  const Image image = draw_tiles(build_block_mask(causal(), {1, 1, 512, 512}), options);
  EXPECT_EQ(count_matrix_pixels(image, kVisible), 16 * 19 * 19);
}

TEST(DrawTiles, AveragesMoreTilesThanPixels) {
  DrawOptions options;
  options.max_pixels = 64;
  constexpr std::int64_t kLength = std::int64_t{1} << 20;  // 256 x 256 tiles a pixel
  const Image image = draw_tiles(build_block_mask(causal(), {1, 1, kLength, kLength}), options);
  EXPECT_EQ(count_matrix_pixels(image, kVisible), 64 * 63 / 2);
  EXPECT_EQ(count_matrix_pixels(image, kHidden), 64 * 63 / 2);
}

TEST(DrawOptions, AreRefusedByName) {
  const ScoreShape shape{2, 3, 100, 50};
  const auto message = [&](const std::function<void(DrawOptions&)>& change) -> std::string {
    DrawOptions options;
    change(options);
    try {
      draw_elements(causal(), shape, Alignment::kTopLeft, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](DrawOptions& o) { o.batch = 2; }), HasSubstr("batch: expected 0 to 1"));
  EXPECT_THAT(message([](DrawOptions& o) { o.head = -1; }), HasSubstr("head: expected 0 to 2"));
  EXPECT_THAT(message([](DrawOptions& o) { o.region.q_end = 101; }), HasSubstr("region: queries"));
  EXPECT_THAT(message([](DrawOptions& o) { o.region.k_begin = 50; }), HasSubstr("region: keys"));
  EXPECT_THAT(message([](DrawOptions& o) { o.max_pixels = 63; }), HasSubstr("max_pixels"));
  EXPECT_THAT(message([](DrawOptions& o) { o.max_pixels = 4097; }), HasSubstr("max_pixels"));
}

TEST(DrawFrame, KeepsLongAndStrangeTitlesInside) {
  DrawOptions options;
  options.title = std::string(500, 'W') + "\xc3\xa9\x01";
  options.max_pixels = 64;
  const Image plain = draw_elements(causal(), {1, 1, 8, 8});
  const Image image = draw_elements(causal(), {1, 1, 8, 8}, Alignment::kTopLeft, options);
  EXPECT_LE(image.width, plain.width);
}

TEST(SavePng, WritesWhatAnotherDecoderReads) {
  const Image drawn = beside(draw_elements(causal(), {1, 1, 20, 30}),
                             draw_tiles(build_block_mask(causal(), {1, 1, 200, 300})));
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("stof_draw_" + std::to_string(::getpid()) + ".png"))
                               .string();
  save_png(drawn, path);
  int width = 0, height = 0, channels = 0;
  std::uint8_t* pixels = stbi_load(path.c_str(), &width, &height, &channels, 3);
  std::filesystem::remove(path);
  ASSERT_NE(pixels, nullptr);
  EXPECT_EQ(width, drawn.width);
  EXPECT_EQ(height, drawn.height);
  EXPECT_EQ(channels, 3);
  EXPECT_TRUE(std::equal(drawn.rgb.begin(), drawn.rgb.end(), pixels));
  stbi_image_free(pixels);
}

TEST(SavePng, RefusesAnImageOfTheWrongSize) {
  Image image{4, 4, std::vector<std::uint8_t>(47)};
  EXPECT_THROW(save_png(image, "/tmp/never-written.png"), Error);
}

}  // namespace
}  // namespace stof::mask
