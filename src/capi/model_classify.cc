// Image classifiers of stof/models.h.

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/model.h"
#include "capi/sized.h"

namespace stof::capi {
namespace {

ClassifyOptions classify_options_of(const stof_classify_options* options) {
  const stof_classify_options given = read_sized_or_default(options, "options");
  ClassifyOptions result;
  result.num_threads = given.num_threads;
  result.mask = masks_of(given.mask, given.mask_set);
  result.count = value_or(given.count, result.count);
  result.batch = value_or(given.batch, result.batch);
  result.progress = progress_of(given.on_progress, given.context);
  return result;
}

std::string labels_json(const std::vector<std::vector<ImageLabel>>& results) {
  auto all = nlohmann::ordered_json::array();
  for (const auto& labels : results) {
    auto of_image = nlohmann::ordered_json::array();
    for (const ImageLabel& label : labels)
      of_image.push_back(
          {{"id", label.id}, {"label", label.label}, {"probability", label.probability}});
    all.push_back(std::move(of_image));
  }
  return dump(all);
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_model_classify_files(const stof_model* model, int64_t num_files,
                                      const char* const* paths,
                                      const stof_classify_options* options, char** json) {
  return make_text(json, "json", [&] {
    return labels_json(classifier_of(model).classify(texts_of(num_files, paths, nullptr, "paths"),
                                                     classify_options_of(options)));
  });
}

stof_status stof_model_classify(const stof_model* model, const stof_tensor* pixels,
                                const stof_classify_options* options, char** json) {
  return make_text(json, "json", [&] {
    const stof::ImageClassifier& classifier = classifier_of(model);
    return labels_json(classifier.classify(stof::Tensor::copy_of(tensor_of(pixels, "pixels")),
                                           classify_options_of(options)));
  });
}

stof_status stof_model_pixels(const stof_model* model, const stof_tensor* image,
                              const stof_tensor* pixels) {
  return guard([&] {
    const stof::ImageClassifier& classifier = classifier_of(model);
    const auto output = float32_output_of(pixels, "pixels",
                                          {3, classifier.image_height(), classifier.image_width()});
    write_to(output, classifier.pixels(tensor_of(image, "image")));
  });
}

}  // extern "C"
