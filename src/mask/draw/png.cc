// Only this file sees stb's PNG encoder.

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include "core/check.h"
#include "core/file.h"
#include "stof/mask_draw.h"

namespace stof::mask {
namespace {

void append_bytes(void* text, void* data, int size) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(data),
                                          static_cast<std::size_t>(size));
}

}  // namespace

std::string encode_png(const Image& image) {
  const std::int64_t pixels = image.width * image.height;
  STOF_CHECK(image.width >= 1 && image.height >= 1 && image.width <= 1 << 15 &&
                 image.height <= 1 << 15 && std::ssize(image.rgb) == 3 * pixels,
             kInvalidArgument, "PNG: expected an image of 1 to 32768 pixels a side, got {} x {}",
             image.width, image.height);
  std::string png;
  const int width = static_cast<int>(image.width), height = static_cast<int>(image.height);
  const int done =
      stbi_write_png_to_func(append_bytes, &png, width, height, 3, image.rgb.data(), 3 * width);
  STOF_CHECK(done != 0, kOutOfMemory, "PNG: an image of {} x {} pixels does not fit in memory",
             width, height);
  return png;
}

void save_png(const Image& image, const std::string& path) { write_file(path, encode_png(image)); }

}  // namespace stof::mask
