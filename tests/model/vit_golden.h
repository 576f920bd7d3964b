#pragma once
// The cases of tools/make_golden_vit.py as Hugging Face folders.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/temporary_folder.h"
#include "model/test_data.h"
#include "stof/safetensors.h"

namespace stof::model {

class VitGolden {
 public:
  const nlohmann::json& cases() const { return json_.at("cases"); }
  const nlohmann::json& processors() const { return json_.at("processors"); }
  const nlohmann::json& at(const std::string& name) const {
    for (const nlohmann::json& entry : cases())
      if (entry.at("name") == name) return entry;
    throw std::runtime_error(name + ": no such case");
  }
  TensorView tensor(const std::string& name) const { return tensors_.require(name); }
  static std::string image(const std::string& name) {
    return std::string(STOF_TEST_DATA) + "/" + name;
  }

  /// The leading parts of the weights that a case uses.
  std::map<std::string, Tensor> weights(const nlohmann::json& entry) const {
    std::map<std::string, Tensor> weights;
    for (const auto& [name, extents] : entry.at("tensors").items()) {
      TensorView view = tensors_.require("weight." + name);
      view.shape = Dims(extents.get<std::vector<std::int64_t>>());  // strides stay the whole's
      weights[name] = Tensor::copy_of(view);
    }
    return weights;
  }

  void write(const TemporaryFolder& folder, const nlohmann::json& entry) const {
    write(folder, entry, weights(entry));
  }
  void write(const TemporaryFolder& folder, const nlohmann::json& entry,
             const std::map<std::string, Tensor>& weights) const {
    folder.write("config.json", entry.at("config").dump());
    folder.write("preprocessor_config.json", entry.at("processor").dump());
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : weights) named.push_back({name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
  }

 private:
  nlohmann::json json_ = read_golden_json("vit_golden.json");
  SafetensorsFile tensors_ =
      SafetensorsFile::open(std::string(STOF_TEST_DATA) + "/vit_golden.safetensors");
};

}  // namespace stof::model
