#pragma once
// ImageClassifier: a ViT checkpoint folder in, the likeliest labels of images out.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stof/mask_set.h"
#include "stof/prune.h"
#include "stof/tensor.h"

namespace stof {

struct ImageLabel {
  std::int64_t id = 0;
  std::string label;
  float probability = 0;  ///< among all labels
};

struct ClassifyOptions {
  std::int64_t count = 5;  ///< labels of each image, likeliest first
  /// Of attention: token 0 is the class token, the patches follow row by row. Layers and heads may
  /// have masks of their own.
  mask::MaskSet mask;
  std::int64_t batch = 8;  ///< images per forward pass
  int num_threads = 0;     ///< 0 = all
  /// Attention under what a pruner leaves of each layer's mask (docs/pruning.md); on the CPU.
  std::optional<mask::PruneOptions> prune = {};
  /// Called after each batch with (images done, images in all).
  std::function<void(std::int64_t, std::int64_t)> progress;
};

/// A classifier loaded from an ordinary Hugging Face folder: config.json, preprocessor_config.json
/// and model.safetensors of ViTForImageClassification. Computes in float32 on the CPU. Immutable
/// after load; safe from several threads.
class ImageClassifier {
 public:
  /// Throws NotFound, Corrupt or Unsupported naming file, field or tensor, expected and got.
  static ImageClassifier load(const std::string& folder);

  std::int64_t num_layers() const;
  std::int64_t num_heads() const;
  std::int64_t image_height() const;  ///< pixels that the model reads
  std::int64_t image_width() const;
  const std::vector<std::string>& labels() const;  ///< by id
  std::string describe() const;

  /// Of PNG and JPEG files. Throws NotFound, Corrupt or Unsupported naming the file.
  std::vector<std::vector<ImageLabel>> classify(const std::vector<std::string>& paths,
                                                const ClassifyOptions& options = {}) const;
  /// Of float32 [images, 3, height, width], as pixels() makes them.
  std::vector<std::vector<ImageLabel>> classify(const Tensor& pixels,
                                                const ClassifyOptions& options = {}) const;

  /// What the model reads of an image: float32 [3, height, width], resized and normalised.
  Tensor pixels(const std::string& path) const;
  /// The same of an image in memory: uint8 [height, width, 3], red, green and blue.
  Tensor pixels(const TensorView& rgb) const;

  /// Scores of all labels: float32 [images, labels], of float32 [images, 3, height, width].
  Tensor logits(const Tensor& pixels, const ClassifyOptions& options = {}) const;

  struct Impl;
  explicit ImageClassifier(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace stof
