// Only this file sees stb's decoders.

#include "model/image.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/check.h"
#include "core/file.h"

#ifndef __clang_analyzer__  // which would look into stb itself
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#endif
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#include <stb/stb_image.h>

namespace stof::model {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t kMaxImageBytes = std::uint64_t{256} << 20;
constexpr std::int64_t kMaxPixels = 64'000'000;

/// The orientation that a JPEG's EXIF block states, 1 where it states none.
int exif_orientation(std::string_view bytes) {
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u;
  };
  if (byte(0) != 0xFF || byte(1) != 0xD8) return 1;
  // Segments: FF, a kind, and a length that counts itself. Pixels begin with FF DA.
  for (std::size_t at = 2; byte(at) == 0xFF && byte(at + 1) != 0xDA;) {
    const std::size_t length = byte(at + 2) << 8 | byte(at + 3);
    if (length < 2) return 1;
    const std::size_t tiff = at + 10;
    const bool exif =
        byte(at + 1) == 0xE1 && tiff <= bytes.size() && bytes.substr(at + 4, 6) == "Exif\0\0"sv;
    at += 2 + length;
    if (!exif) continue;
    const bool little = byte(tiff) == 'I';
    const auto number = [&](std::size_t i, int size) {
      std::size_t value = 0;
      for (int k = 0; k < size; ++k)
        value = value << 8 | byte(tiff + i + static_cast<std::size_t>(little ? size - 1 - k : k));
      return value;
    };
    const std::size_t directory = number(4, 4);
    if (directory > length) return 1;
    const std::size_t count = number(directory, 2);
    for (std::size_t i = 0; i < std::min<std::size_t>(count, 1000); ++i)
      if (number(directory + 2 + 12 * i, 2) == 0x0112)
        return static_cast<int>(number(directory + 2 + 12 * i + 8, 2));
    return 1;
  }
  return 1;
}

double filter_value(Resample resample, double x) {
  x = std::abs(x);
  if (resample == Resample::kBilinear) return std::max(0., 1 - x);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((x - 5) * x + 8) * x * a - 4 * a;
  return 0;
}

/// Which values make one of the result, in 22 bits of fraction.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};
constexpr int kFractionBits = 22;

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to, Resample resample) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widened = std::max(scale, 1.);
  const double support = (resample == Resample::kBilinear ? 1. : 2.) * widened;
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    Taps& taps = all[static_cast<std::size_t>(i)];
    const double center = (static_cast<double>(i) + 0.5) * scale;
    taps.first =
        std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(center - support + 0.5)));
    const std::int64_t end =
        std::min(from, static_cast<std::int64_t>(std::floor(center + support + 0.5)));
    std::vector<double> values;
    double sum = 0;
    for (std::int64_t x = taps.first; x < end; ++x) {
      values.push_back(filter_value(resample, (static_cast<double>(x) - center + 0.5) / widened));
      sum += values.back();
    }
    for (const double value : values)
      taps.weights.push_back(
          static_cast<std::int32_t>(std::lround(value / sum * (std::int32_t{1} << kFractionBits))));
  }
  return all;
}

/// Resizes along one direction: `stride` is the distance of neighbours, `lines` and `line_stride`
/// how many lines lie where, all in pixels.
void resize_lines(const std::uint8_t* from, std::int64_t stride, std::int64_t line_stride,
                  std::uint8_t* to, std::int64_t to_stride, std::int64_t to_line_stride,
                  std::int64_t lines, const std::vector<Taps>& taps) {
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::size_t i = 0; i < taps.size(); ++i)
      for (std::int64_t c = 0; c < 3; ++c) {
        std::int64_t sum = std::int64_t{1} << (kFractionBits - 1);
        std::int64_t x = taps[i].first;
        for (const std::int32_t weight : taps[i].weights)
          sum += weight * std::int64_t{from[(line * line_stride + x++ * stride) * 3 + c]};
        to[(line * to_line_stride + static_cast<std::int64_t>(i) * to_stride) * 3 + c] =
            static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kFractionBits, 0, 255));
      }
}

RgbImage blank(std::int64_t width, std::int64_t height) {
  return {width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3))};
}

}  // namespace

RgbImage decode_image(std::string_view bytes, const std::string& where) {
  const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
  STOF_CHECK(bytes.size() <= kMaxImageBytes, kUnsupported, "{}: expected at most {} bytes, got {}",
             where, kMaxImageBytes, bytes.size());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, channels = 0;
  STOF_CHECK(stbi_info_from_memory(data, size, &width, &height, &channels) != 0, kUnsupported,
             "{}: expected a PNG or JPEG image, got something else", where);
  STOF_CHECK(std::int64_t{width} * height <= kMaxPixels, kUnsupported,
             "{}: expected at most {} pixels, got {}x{}", where, kMaxPixels, width, height);
  STOF_CHECK(stbi_is_16_bit_from_memory(data, size) == 0, kUnsupported,
             "{}: expected 8 bits a channel, got 16; convert it first", where);
  STOF_CHECK(exif_orientation(bytes) == 1, kUnsupported,
             "{}: expected an upright image, got EXIF orientation {}; turn it first", where,
             exif_orientation(bytes));
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &width, &height, &channels, 3), stbi_image_free);
  STOF_CHECK(pixels != nullptr, kCorrupt, "{}: decoding failed: {}", where, stbi_failure_reason());
  RgbImage image = blank(width, height);
  std::copy_n(pixels.get(), image.rgb.size(), image.rgb.data());
  return image;
}

RgbImage load_image(const std::string& path) {
  return decode_image(read_text_file(path, kMaxImageBytes), path);
}

RgbImage resize(const RgbImage& image, std::int64_t width, std::int64_t height, Resample resample) {
  RgbImage wide = image;
  STOF_CHECK(width <= kMaxPixels / std::max<std::int64_t>(image.height, 1), kUnsupported,
             "image: expected at most {} pixels while it is resized, got {}x{} from {}x{}",
             kMaxPixels, width, image.height, image.width, image.height);
  if (width != image.width) {
    wide = blank(width, image.height);
    resize_lines(image.rgb.data(), 1, image.width, wide.rgb.data(), 1, width, image.height,
                 taps_of(image.width, width, resample));
  }
  if (height == image.height) return wide;
  RgbImage result = blank(width, height);
  resize_lines(wide.rgb.data(), width, 1, result.rgb.data(), width, 1, width,
               taps_of(image.height, height, resample));
  return result;
}

Tensor ImageProcessor::operator()(const RgbImage& image) const {
  const RgbImage sized = resizes ? resize(image, width, height, resample) : image;
  const std::int64_t pixels = sized.width * sized.height;
  Tensor result(DType::kFloat32, {3, sized.height, sized.width});
  float* out = result.as<float>().data();
  for (std::size_t c = 0; c < 3; ++c)
    for (std::int64_t i = 0; i < pixels; ++i)
      *out++ = static_cast<float>(
          (sized.rgb[static_cast<std::size_t>(i) * 3 + c] * scale - mean[c]) / deviation[c]);
  return result;
}

}  // namespace stof::model
