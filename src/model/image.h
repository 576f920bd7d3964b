#pragma once
// Pictures: reading, resizing, and what an image processor of transformers does before a model.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stof/tensor.h"

namespace stof::model {

/// 8-bit RGB, row by row.
struct RgbImage {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
};

/// PNG or JPEG; grey becomes RGB, an alpha channel is dropped. `where` begins messages. Throws
/// Corrupt, or Unsupported: another format, more than 64 million pixels, 16 bits a channel, or a
/// JPEG whose EXIF data turn it.
RgbImage decode_image(std::string_view bytes, const std::string& where);
/// Also throws NotFound.
RgbImage load_image(const std::string& path);

enum class Resample : std::uint8_t { kBilinear, kBicubic };

/// As Pillow: the filter widened where the image shrinks (antialiasing), rows first, 8 bits
/// between.
RgbImage resize(const RgbImage& image, std::int64_t width, std::int64_t height, Resample resample);

/// preprocessor_config.json
struct ImageProcessor {
  bool resizes = true;
  std::int64_t width = 224, height = 224;
  Resample resample = Resample::kBilinear;
  double scale = 1 / 255.;          ///< of each value; 1: not rescaled
  double mean[3] = {0, 0, 0};       ///< subtracted after it
  double deviation[3] = {1, 1, 1};  ///< and divided by

  /// float32 [3, height, width]
  Tensor operator()(const RgbImage& image) const;
};

/// Honours every field that changes numbers or refuses it by name. Throws NotFound, Corrupt or
/// Unsupported.
ImageProcessor load_image_processor(const std::string& folder);
ImageProcessor parse_image_processor(std::string_view text, const std::string& file);

}  // namespace stof::model
