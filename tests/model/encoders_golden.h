#pragma once
// The cases of tools/make_golden_encoders.py as Hugging Face folders.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/temporary_folder.h"
#include "model/test_data.h"
#include "stof/safetensors.h"
#include "stof/tensor.h"

namespace stof::model {

/// Of relative_difference(): float32 against transformers in float64.
constexpr double kRelative = 1e-5;

class EncodersGolden {
 public:
  const nlohmann::json& cases() const { return json_.at("cases"); }
  const nlohmann::json& at(const std::string& name) const {
    for (const nlohmann::json& entry : cases())
      if (entry.at("name") == name) return entry;
    throw std::runtime_error(name + ": no such case");
  }
  const nlohmann::json& tokenizer(const nlohmann::json& entry) const {
    return json_.at("tokenizers").at(entry.at("tokenizer").get<std::string>());
  }
  TensorView expected(const std::string& kind, const nlohmann::json& entry) const {
    return tensors_.require(kind + "." + entry.at("name").get<std::string>());
  }

  std::map<std::string, Tensor> weights(const nlohmann::json& entry) const {
    const std::string family = entry.at("config").at("model_type");
    std::map<std::string, Tensor> weights;
    for (const auto& [name, role] : json_.at("tensors").at(family).items()) {
      TensorView view = tensors_.require("weight." + role.get<std::string>());
      if (const auto smaller = entry.at("shapes").find(name); smaller != entry.at("shapes").end())
        view.shape = Dims(smaller->get<std::vector<std::int64_t>>());  // strides stay the whole's
      weights[name] = Tensor::copy_of(view);
    }
    for (const nlohmann::json& name : entry.at("absent")) weights.erase(name);
    return weights;
  }

  void write(const TemporaryFolder& folder, const nlohmann::json& entry) const {
    write(folder, entry, entry.at("config"), weights(entry));
  }
  void write(const TemporaryFolder& folder, const nlohmann::json& entry,
             const nlohmann::json& config, const std::map<std::string, Tensor>& weights) const {
    folder.write("config.json", config.dump());
    for (const auto& [name, content] : tokenizer(entry).at("files").items())
      folder.write(name, content.dump());
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : weights) named.push_back({name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
  }

 private:
  nlohmann::json json_ = read_golden_json("encoders_golden.json");
  SafetensorsFile tensors_ =
      SafetensorsFile::open(std::string(STOF_TEST_DATA) + "/encoders_golden.safetensors");
};

/// Largest difference over the largest value.
inline double relative_difference(const Tensor& found, const TensorView& expected) {
  EXPECT_EQ(found.shape(), expected.shape);
  if (found.shape() != expected.shape) return INFINITY;
  const auto* values = static_cast<const float*>(expected.data);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < found.as<float>().size(); ++i) {
    const double off = std::abs(static_cast<double>(found.as<float>()[i]) - values[i]);
    worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  return worst / largest;
}

}  // namespace stof::model
