#pragma once
// The cases of tools/make_golden_llama.py as Hugging Face folders and GGUF files.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/temporary_folder.h"
#include "model/test_data.h"
#include "stof/safetensors.h"
#include "stof/text_generator.h"

namespace stof::model {

/// A team costs more than it gains on models this small.
inline GenerateOptions one_thread() {
  GenerateOptions options;
  options.num_threads = 1;
  return options;
}

/// Byte-level BPE without merges: letters, space, and "</s>" as token 49.
inline nlohmann::json tiny_tokenizer_json() {
  nlohmann::json vocab;
  for (int i = 0; i < 26; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
  vocab["\u0120"] = 26;
  for (int i = 27; i < 49; ++i) vocab[std::string(1, static_cast<char>('A' + i - 27))] = i;
  vocab["</s>"] = 49;
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens", {{{"id", 49}, {"content", "</s>"}, {"special", true}}}}};
}

class LlamaGolden {
 public:
  /// The two files of that name in tests/data.
  explicit LlamaGolden(const std::string& name = "llama_golden")
      : json_(read_golden_json(name + ".json")),
        tensors_(SafetensorsFile::open(std::string(STOF_TEST_DATA) + "/" + name + ".safetensors")) {
  }

  const nlohmann::json& cases() const { return json_.at("cases"); }
  const nlohmann::json& ropes() const { return json_.at("ropes"); }
  std::vector<std::int32_t> ids() const { return json_.at("ids"); }
  const nlohmann::json& at(const std::string& name) const {
    for (const auto& entry : cases())
      if (entry.at("name") == name) return entry;
    throw std::runtime_error(name + ": no such case");
  }
  Tensor logits(const std::string& name) const {
    return Tensor::copy_of(tensors_.require("logits." + name));
  }

  /// The leading rows and columns of the weight that a case uses, by its name in the file.
  std::map<std::string, Tensor> weights(const nlohmann::json& entry) const {
    std::map<std::string, Tensor> weights;
    for (const auto& [name, extents] : entry.at("tensors").items()) {
      const std::vector<std::int64_t> sizes = extents;
      TensorView view = tensors_.require("weight." + name);
      view.shape = Dims(sizes);  // strides stay those of the whole
      weights[name] = Tensor::copy_of(view);
    }
    return weights;
  }

  /// Writes the folder of a case; `config` replaces the case's own.
  void write(const TemporaryFolder& folder, const nlohmann::json& entry,
             const nlohmann::json& config, std::map<std::string, Tensor> weights,
             const std::string& prefix = "model.") const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : weights) {
      const std::string own = name.starts_with("model.") ? prefix + name.substr(6) : name;
      named.push_back({own, tensor.view()});
    }
    save_safetensors(folder.path() + "/model.safetensors", named);
    folder.write("config.json", (config.is_null() ? entry.at("config") : config).dump());
    folder.write("tokenizer.json", tiny_tokenizer_json().dump());
  }

 private:
  nlohmann::json json_;
  SafetensorsFile tensors_;
};

/// A GGUF file with float32 tensors, written plainly.
class GgufWriter {
 public:
  void add(const std::string& key, std::uint32_t value) { number(key, 4, value); }
  void add(const std::string& key, float value) { number(key, 6, value); }
  void add(const std::string& key, const std::string& value) {
    begin_value(key, 8);
    add_text(values_, value);
  }
  void add(const std::string& key, const std::vector<std::string>& list) {
    begin_array(key, 8, list.size());
    for (const std::string& value : list) add_text(values_, value);
  }
  void add(const std::string& key, const std::vector<std::int32_t>& list) {
    begin_array(key, 5, list.size());
    for (const std::int32_t value : list) add_raw(values_, value);
  }
  void add_tensor(const std::string& name, const Tensor& tensor) {
    add_text(infos_, name);
    const int rank = tensor.shape().rank();
    add_raw(infos_, static_cast<std::uint32_t>(rank));
    for (int i = rank - 1; i >= 0; --i)
      add_raw(infos_, static_cast<std::uint64_t>(tensor.shape()[i]));
    add_raw(infos_, std::uint32_t{0});
    add_raw(infos_, static_cast<std::uint64_t>(data_.size()));
    data_.append(static_cast<const char*>(tensor.data()), tensor.bytes());
    data_.resize((data_.size() + 31) / 32 * 32);
    ++num_tensors_;
  }
  std::string bytes() const {
    std::string file = "GGUF";
    add_raw(file, std::uint32_t{3});
    add_raw(file, num_tensors_);
    add_raw(file, num_values_);
    file += values_ + infos_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  template <class T>
  static void add_raw(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void add_text(std::string& to, const std::string& text) {
    add_raw(to, static_cast<std::uint64_t>(text.size()));
    to += text;
  }
  void begin_value(const std::string& key, std::uint32_t type) {
    add_text(values_, key);
    add_raw(values_, type);
    ++num_values_;
  }
  void begin_array(const std::string& key, std::uint32_t type, std::size_t size) {
    begin_value(key, 9);
    add_raw(values_, type);
    add_raw(values_, static_cast<std::uint64_t>(size));
  }
  template <class T>
  void number(const std::string& key, std::uint32_t type, T value) {
    begin_value(key, type);
    add_raw(values_, value);
  }

  std::string values_, infos_, data_;
  std::uint64_t num_values_ = 0, num_tensors_ = 0;
};

/// Of relative_error().
constexpr double kTolerance = 1e-5;

/// Largest difference over the largest value.
inline double relative_error(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.shape(), expected.shape());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.as<float>().size(); ++i) {
    const double a = actual.as<float>()[i], e = expected.as<float>()[i];
    worst = std::max(worst, std::isfinite(a) ? std::abs(a - e) : INFINITY);
    largest = std::max(largest, std::abs(e));
  }
  return worst / largest;
}

}  // namespace stof::model
