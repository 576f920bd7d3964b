#pragma once
// Keys and values of the tokens seen so far.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stof::model {

/// Contiguous: [length, width] of each layer, growing by doubling. One sequence.
class KvCache {
 public:
  KvCache(std::int64_t num_layers, std::int64_t width)
      : width_(width), layers_(static_cast<std::size_t>(num_layers)) {}

  std::int64_t length() const { return length_; }
  std::int64_t width() const { return width_; }

  /// Makes room for `rows` more; addresses change.
  void reserve(std::int64_t rows) {
    const auto floats = static_cast<std::size_t>((length_ + rows) * width_);
    for (Layer& layer : layers_) {
      if (layer.keys.size() >= floats) continue;
      const std::size_t capacity = std::max(floats, 2 * layer.keys.size());
      layer.keys.resize(capacity);
      layer.values.resize(capacity);
    }
  }
  /// Rows from length() on are written by the caller, who then calls advance().
  float* keys(std::int64_t layer) { return layers_[static_cast<std::size_t>(layer)].keys.data(); }
  float* values(std::int64_t layer) {
    return layers_[static_cast<std::size_t>(layer)].values.data();
  }
  void advance(std::int64_t rows) { length_ += rows; }

 private:
  struct Layer {
    std::vector<float> keys, values;
  };
  std::int64_t width_, length_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace stof::model
