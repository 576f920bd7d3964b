#include "stof/image_classifier.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/attention/pruned.h"
#include "backend/cpu/thread_scope.h"
#include "core/cancel.h"
#include "core/check.h"
#include "core/optional_libraries.h"
#include "core/threads.h"
#include "exec/cpu_session.h"
#include "model/image.h"
#include "model/layer_masks.h"
#include "model/likeliest.h"
#include "model/pruning.h"
#include "model/vit.h"

namespace stof {

struct ImageClassifier::Impl {
  Impl(model::VitConfig c, model::ImageProcessor p, model::VitWeights w)
      : config(std::move(c)),
        processor(p),
        weights(std::move(w)),
        bound(bind_vit_weights(build_vit_graph(config, 1), weights)),
        session([this](std::int64_t rows) { return session_graph(rows); },
                std::make_shared<exec::CpuWeights>(build_vit_graph(config, 1), bound.values)),
        classifier(weights.classifier, weights.classifier_bias) {}
  Impl(const Impl&) = delete;

  graph::Graph session_graph(std::int64_t rows) const {
    return model::with_layer_masks(build_vit_graph(config, rows));
  }

  model::VitConfig config;
  model::ImageProcessor processor;
  model::VitWeights weights;  ///< read where they are
  model::GraphWeights bound;  ///< into weights, and what is made of several
  mutable exec::CpuSession session;
  cpu::Linear classifier;

  /// One row a token: a class token's zeros, then the patches' values by channel.
  Tensor patches(const Tensor& pixels) const {
    const std::int64_t images = pixels.shape()[0], width = config.image_width;
    const std::int64_t plane = config.image_height * width;
    Tensor rows(DType::kFloat32, {images * config.num_tokens(), config.patch_values()});
    const float* in = pixels.as<float>().data();
    float* out = rows.as<float>().data();
    for (std::int64_t image = 0; image < images; ++image, in += 3 * plane) {
      out = std::fill_n(out, config.patch_values(), 0.f);
      for (std::int64_t y = 0; y < config.image_height; y += config.patch_height)
        for (std::int64_t x = 0; x < width; x += config.patch_width)
          for (std::int64_t c = 0; c < 3; ++c)
            for (std::int64_t row = y; row < y + config.patch_height; ++row)
              out = std::copy_n(in + c * plane + row * width + x, config.patch_width, out);
    }
    return rows;
  }

  void check_options(const ClassifyOptions& options) const {
    STOF_CHECK(options.count >= 1, kInvalidArgument, "count: expected at least 1 label, got {}",
               options.count);
    STOF_CHECK(options.batch >= 1, kInvalidArgument, "batch: expected at least 1, got {}",
               options.batch);
  }

  /// `where` begins messages.
  Tensor read(const model::RgbImage& image, const std::string& where) const {
    Tensor pixels = processor(image);
    const Dims expected = {3, config.image_height, config.image_width};
    STOF_CHECK(pixels.shape() == expected, kUnsupported,
               "{}: expected {} pixels (the checkpoint does not resize), got {}", where,
               expected.to_string(), pixels.shape().to_string());
    return pixels;
  }

  /// Appends the likeliest labels of each image.
  void choose(const Tensor& scores, std::int64_t count,
              std::vector<std::vector<ImageLabel>>& results) const {
    const auto num_labels = config.labels.size();
    for (std::int64_t i = 0; i < scores.shape()[0]; ++i) {
      std::vector<ImageLabel>& labels = results.emplace_back();
      const auto row =
          scores.as<float>().subspan(static_cast<std::size_t>(i) * num_labels, num_labels);
      for (const auto& [id, probability] : model::likeliest(row, count))
        labels.push_back({id, config.labels[static_cast<std::size_t>(id)], probability});
    }
  }
};

ImageClassifier ImageClassifier::load(const std::string& folder) {
  open_onednn();
  model::VitConfig config = model::load_vit_config(folder);
  const model::ImageProcessor processor = model::load_image_processor(folder);
  STOF_CHECK(!processor.resizes ||
                 (processor.height == config.image_height && processor.width == config.image_width),
             kUnsupported,
             "{}: size: expected image_size of config.json, {}x{}, got {}x{}; positions are not "
             "interpolated",
             folder + "/preprocessor_config.json", config.image_height, config.image_width,
             processor.height, processor.width);
  model::VitWeights weights = model::load_vit_weights(Checkpoint::open(folder), config);
  return ImageClassifier(
      std::make_shared<const Impl>(std::move(config), processor, std::move(weights)));
}

std::string ImageClassifier::describe() const {
  const model::VitConfig& config = impl_->config;
  return fmt::format(
      "ViT: {} layers, hidden {}, {} heads of {}, inner {}, {}x{} pixels in patches "
      "of {}x{}, {} labels",
      config.num_layers, config.hidden_size, config.num_heads, config.head_dim(),
      config.intermediate_size, config.image_height, config.image_width, config.patch_height,
      config.patch_width, config.labels.size());
}

std::int64_t ImageClassifier::num_layers() const { return impl_->config.num_layers; }
std::int64_t ImageClassifier::num_heads() const { return impl_->config.num_heads; }
std::int64_t ImageClassifier::image_height() const { return impl_->config.image_height; }
std::int64_t ImageClassifier::image_width() const { return impl_->config.image_width; }
const std::vector<std::string>& ImageClassifier::labels() const { return impl_->config.labels; }

Tensor ImageClassifier::pixels(const std::string& path) const {
  return impl_->read(model::load_image(path), path);
}

Tensor ImageClassifier::pixels(const TensorView& rgb) const {
  STOF_CHECK(rgb.dtype == DType::kUInt8 && rgb.shape.rank() == 3 && rgb.shape[2] == 3 &&
                 rgb.shape[0] >= 1 && rgb.shape[1] >= 1,
             kInvalidArgument, "image: expected uint8 [height, width, 3], got {} {}",
             to_string(rgb.dtype), rgb.shape.to_string());
  const Tensor copy = Tensor::copy_of(rgb);
  const auto* bytes = static_cast<const std::uint8_t*>(copy.data());
  return impl_->read({rgb.shape[1], rgb.shape[0], {bytes, bytes + copy.bytes()}}, "image");
}

Tensor ImageClassifier::logits(const Tensor& pixels, const ClassifyOptions& options) const {
  const model::VitConfig& config = impl_->config;
  const Dims& shape = pixels.shape();
  STOF_CHECK(pixels.dtype() == DType::kFloat32 && shape.rank() == 4 && shape[1] == 3 &&
                 shape[2] == config.image_height && shape[3] == config.image_width,
             kInvalidArgument, "pixels: expected float32 [images, 3, {}, {}], got {} {}",
             config.image_height, config.image_width, to_string(pixels.dtype()), shape.to_string());
  check_num_threads(options.num_threads);
  options.mask.check(config.num_layers, config.num_heads, "images");
  if (options.prune) model::check_pruning(*options.prune, "CPU", config.num_heads);
  const auto labels = static_cast<std::int64_t>(config.labels.size());
  Tensor scores(DType::kFloat32, {shape[0], labels});
  if (shape[0] == 0) return scores;
  const cpu::ThreadScope threads(options.num_threads);
  const cpu::PruneScope pruning(options.prune ? &*options.prune : nullptr);
  const std::int64_t tokens = config.num_tokens();
  const Tensor patches = impl_->patches(pixels);
  exec::Batch batch;
  std::vector<std::int32_t> places;
  for (std::int64_t i = 0; i <= shape[0]; ++i) batch.offsets.push_back(i * tokens);
  for (std::int64_t i = 0; i < shape[0] * tokens; ++i)
    places.push_back(static_cast<std::int32_t>(i % tokens));
  batch.inputs = {{"places", {places.data(), DType::kInt32, {batch.rows()}}},
                  {"patches", patches.view()}};
  const std::vector<int> kinds(static_cast<std::size_t>(config.num_layers));
  model::combine_masks(
      kinds, [](const mask::Mask& also) { return std::vector{also}; }, options.mask,
      config.num_heads)
      .bind(batch);
  const Tensor states = impl_->session.run(batch);
  Tensor classes(DType::kFloat32, {shape[0], config.hidden_size});
  for (std::int64_t i = 0; i < shape[0]; ++i)
    std::copy_n(states.as<float>().data() + i * tokens * config.hidden_size, config.hidden_size,
                classes.as<float>().data() + i * config.hidden_size);
  impl_->classifier.run(classes.as<float>().data(), shape[0], scores.as<float>().data());
  return scores;
}

std::vector<std::vector<ImageLabel>> ImageClassifier::classify(
    const std::vector<std::string>& paths, const ClassifyOptions& options) const {
  impl_->check_options(options);
  const model::VitConfig& config = impl_->config;
  std::vector<std::vector<ImageLabel>> results;
  while (results.size() < paths.size()) {
    check_cancelled();
    const std::size_t begin = results.size();
    const std::size_t count =
        std::min(paths.size() - begin, static_cast<std::size_t>(options.batch));
    Tensor batch(DType::kFloat32,
                 {static_cast<std::int64_t>(count), 3, config.image_height, config.image_width});
    auto* out = static_cast<std::byte*>(batch.data());
    for (std::size_t i = begin; i < begin + count; ++i) {
      const Tensor image = pixels(paths[i]);
      out = std::copy_n(static_cast<const std::byte*>(image.data()), image.bytes(), out);
    }
    impl_->choose(logits(batch, options), options.count, results);
    if (options.progress)
      options.progress(static_cast<std::int64_t>(results.size()),
                       static_cast<std::int64_t>(paths.size()));
  }
  return results;
}

std::vector<std::vector<ImageLabel>> ImageClassifier::classify(
    const Tensor& pixels, const ClassifyOptions& options) const {
  impl_->check_options(options);
  std::vector<std::vector<ImageLabel>> results;
  const std::int64_t images = pixels.shape().rank() == 4 ? pixels.shape()[0] : 1;
  for (std::int64_t begin = 0; begin < images; begin += options.batch) {
    check_cancelled();
    const std::int64_t end = std::min(images, begin + options.batch);
    if (end - begin == images) {  // also what is no batch of images, which logits() refuses
      impl_->choose(logits(pixels, options), options.count, results);
    } else {
      TensorView part = pixels.view();
      part.data =
          static_cast<const std::byte*>(pixels.data()) +
          static_cast<std::size_t>(begin) * (pixels.bytes() / static_cast<std::size_t>(images));
      part.shape[0] = end - begin;
      impl_->choose(logits(Tensor::copy_of(part), options), options.count, results);
    }
    if (options.progress) options.progress(end, images);
  }
  return results;
}

}  // namespace stof
