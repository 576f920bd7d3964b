#pragma once
// The cases of tools/make_golden_t5.py as Hugging Face folders.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/temporary_folder.h"
#include "model/test_data.h"
#include "stof/safetensors.h"
#include "stof/tensor.h"

namespace stof::model {

/// A unigram model of letters: "<pad>", "</s>", "<unk>", the blank, a to z, A to J: 40 in all.
inline nlohmann::json tiny_unigram_json() {
  nlohmann::json pieces = nlohmann::json::array(), special = nlohmann::json::array();
  for (const char* token : {"<pad>", "</s>", "<unk>"}) {
    special.push_back({{"id", pieces.size()}, {"content", token}, {"special", true}});
    pieces.push_back(nlohmann::json::array({token, 0.0}));
  }
  pieces.push_back(nlohmann::json::array({"\u2581", -2.0}));
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"))
    pieces.push_back(nlohmann::json::array({std::string(1, c), -4.0}));
  const nlohmann::json space = {{"type", "Metaspace"},
                                {"replacement", "\u2581"},
                                {"prepend_scheme", "always"},
                                {"split", true}};
  return {{"added_tokens", special},
          {"pre_tokenizer", space},
          {"decoder", space},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
              {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", {1}}, {"tokens", {"</s>"}}}}}}}},
          {"model", {{"type", "Unigram"}, {"unk_id", 2}, {"vocab", pieces}}}};
}

class T5Golden {
 public:
  const nlohmann::json& cases() const { return json_.at("cases"); }
  const nlohmann::json& at(const std::string& name) const {
    for (const auto& entry : cases())
      if (entry.at("name") == name) return entry;
    throw std::runtime_error(name + ": no such case");
  }
  /// The text that the encoder reads.
  std::vector<std::int32_t> source() const { return json_.at("source"); }
  /// What the decoder reads after the case's start token.
  std::vector<std::int32_t> target(const nlohmann::json& entry) const {
    std::vector<std::int32_t> ids = json_.at("target");
    ids.insert(ids.begin(), entry.at("config").at("decoder_start_token_id").get<std::int32_t>());
    return ids;
  }
  Tensor encoded(const nlohmann::json& entry) const { return expected("encoded.", entry); }
  Tensor logits(const nlohmann::json& entry) const { return expected("logits.", entry); }

  /// The leading rows and columns of the weights that a case uses.
  std::map<std::string, Tensor> weights(const nlohmann::json& entry) const {
    std::map<std::string, Tensor> weights;
    for (const auto& [name, extents] : entry.at("tensors").items()) {
      TensorView view = tensors_.require("weight." + name);
      view.shape = Dims(extents.get<std::vector<std::int64_t>>());  // strides are the whole's
      weights[name] = Tensor::copy_of(view);
    }
    return weights;
  }

  void write(const TemporaryFolder& folder, const nlohmann::json& entry) const {
    write(folder, entry.at("config"), weights(entry));
  }
  void write(const TemporaryFolder& folder, const nlohmann::json& config,
             const std::map<std::string, Tensor>& weights) const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : weights) named.push_back({name, tensor.view()});
    save_safetensors(folder.path() + "/model.safetensors", named);
    folder.write("config.json", config.dump());
  }

 private:
  Tensor expected(const std::string& kind, const nlohmann::json& entry) const {
    return Tensor::copy_of(tensors_.require(kind + entry.at("name").get<std::string>()));
  }

  nlohmann::json json_ = read_golden_json("t5_golden.json");
  SafetensorsFile tensors_ =
      SafetensorsFile::open(std::string(STOF_TEST_DATA) + "/t5_golden.safetensors");
};

}  // namespace stof::model
