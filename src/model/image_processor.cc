// preprocessor_config.json -> ImageProcessor.

#include "core/check.h"
#include "core/file.h"
#include "model/image.h"
#include "model/json_fields.h"

namespace stof::model {
namespace {

constexpr std::uint64_t kMaxProcessorBytes = 1 << 20;
constexpr std::int64_t kMaxSide = 1 << 14;

/// {"height": h, "width": w}, or in early files one number for both.
void read_size(const JsonFields& fields, ImageProcessor& processor) {
  const Json* size = fields.find("size");
  if (size == nullptr) return;
  if (size->is_number()) {
    processor.width = processor.height = fields.integer("size", 1, kMaxSide);
    return;
  }
  const JsonFields sides = fields.object("size");
  for (const auto& [name, value] : size->items())
    if (name != "height" && name != "width") sides.refuse(name.c_str(), "height and width alone");
  processor.height = sides.integer("height", 1, kMaxSide);
  processor.width = sides.integer("width", 1, kMaxSide);
}

void read_three(const JsonFields& fields, const char* name, double low, double (&values)[3]) {
  if (!fields.has(name)) {
    for (double& value : values) value = 0.5;  // transformers' own for ViT
    return;
  }
  const Json& list = fields.array(name);
  if (list.size() != 3) fields.fail(name, "three numbers");
  for (std::size_t i = 0; i < 3; ++i) {
    if (!list[i].is_number() || !(list[i].get<double>() >= low && list[i].get<double>() <= 1e6))
      fields.fail(name, fmt::format("three numbers of at least {}", low));
    values[i] = list[i].get<double>();
  }
}

}  // namespace

ImageProcessor parse_image_processor(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonFields fields(json, file);
  const char* kind =
      fields.has("image_processor_type") ? "image_processor_type" : "feature_extractor_type";
  const std::string type = fields.string(kind, "ViTImageProcessor");
  if (type != "ViTImageProcessor" && type != "ViTFeatureExtractor" &&
      type != "ViTImageProcessorFast" && type != "ViTImageProcessorPil")
    fields.refuse(kind, "\"ViTImageProcessor\"");
  for (const char* name : {"do_center_crop", "do_pad", "do_reduce_labels"})
    if (fields.boolean(name, false)) fields.refuse(name, "false");
  if (fields.has("crop_size")) fields.refuse("crop_size", "none");
  ImageProcessor processor;
  processor.resizes = fields.boolean("do_resize", true);
  read_size(fields, processor);
  // Pillow's numbers of its filters.
  constexpr std::int64_t kPillowBilinear = 2, kPillowBicubic = 3;
  const std::int64_t resample = fields.integer("resample", 0, 10, kPillowBilinear);
  if (resample != kPillowBilinear && resample != kPillowBicubic)
    fields.refuse("resample", "2 (bilinear) or 3 (bicubic)");
  processor.resample = resample == kPillowBicubic ? Resample::kBicubic : Resample::kBilinear;
  processor.scale =
      fields.boolean("do_rescale", true) ? fields.number("rescale_factor", 0, 1, 1 / 255.) : 1;
  if (fields.boolean("do_normalize", true)) {
    read_three(fields, "image_mean", -1e6, processor.mean);
    read_three(fields, "image_std", 1e-6, processor.deviation);
  }
  return processor;
}

ImageProcessor load_image_processor(const std::string& folder) {
  const std::string path = folder + "/preprocessor_config.json";
  return parse_image_processor(read_text_file(path, kMaxProcessorBytes), path);
}

}  // namespace stof::model
