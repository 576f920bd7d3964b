#include "stof/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "raw_file.h"

namespace stof {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class CheckpointFolder : public FolderTest {
 protected:
  /// A file with int32 scalars.
  void save(const std::string& name, const std::map<std::string, std::int32_t>& values) const {
    std::map<std::string, Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const auto& [key, value] : values) {
      Tensor& tensor = tensors[key] = Tensor(DType::kInt32, {});
      tensor.as<std::int32_t>()[0] = value;
      named.push_back({key, std::as_const(tensor).view()});
    }
    save_safetensors(path(name), named);
  }

  void save_index(const std::string& weight_map) const {
    write("model.safetensors.index.json",
          R"({"metadata":{"total_size":12},"weight_map":)" + weight_map + "}");
  }

  std::string refusal() const {
    return error_of([&] { Checkpoint::open(folder_); });
  }
};

std::int32_t value_of(const TensorView& view) {
  return Tensor::copy_of(view).as<std::int32_t>()[0];
}

TEST_F(CheckpointFolder, OpensASingleFileAndAFolderOfIt) {
  save("model.safetensors", {{"a", 1}, {"b", 2}});
  for (const std::string& where : {folder_, path("model.safetensors")}) {
    const Checkpoint checkpoint = Checkpoint::open(where);
    EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
    EXPECT_EQ(value_of(checkpoint.require("b", {})), 2);
    EXPECT_EQ(checkpoint.find("c"), nullptr);
  }
}

TEST_F(CheckpointFolder, FindsEveryTensorInItsShard) {
  save("one.safetensors", {{"a", 1}, {"b", 2}});
  save("two.safetensors", {{"c", 3}});
  save_index(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"})");
  for (const std::string& where : {folder_, path("model.safetensors.index.json")}) {
    const Checkpoint checkpoint = Checkpoint::open(where);
    EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(checkpoint.files().size(), 2u);
    EXPECT_EQ(value_of(checkpoint.require("a")), 1);
    EXPECT_EQ(value_of(checkpoint.require("c")), 3);
  }
}

TEST_F(CheckpointFolder, TakesATensorFromTheShardThatTheIndexNames) {
  save("one.safetensors", {{"a", 1}});
  save("two.safetensors", {{"a", 2}, {"b", 3}});
  save_index(R"({"a":"two.safetensors","b":"two.safetensors"})");
  EXPECT_EQ(value_of(Checkpoint::open(folder_).require("a")), 2);
}

TEST_F(CheckpointFolder, RefusesAnIndexThatItsShardsContradict) {
  save("one.safetensors", {{"a", 1}});
  save_index(R"({"a":"one.safetensors","b":"one.safetensors"})");
  EXPECT_THAT(refusal(),
              AllOf(StartsWith("Corrupt"), HasSubstr("\"b\""), HasSubstr("one.safetensors"),
                    HasSubstr("model.safetensors.index.json")));
  save_index(R"({"a":"three.safetensors"})");
  EXPECT_THAT(refusal(), AllOf(StartsWith("NotFound"), HasSubstr("three.safetensors")));
}

TEST_F(CheckpointFolder, NeverReadsOutsideTheFolder) {
  save("one.safetensors", {{"a", 1}});
  for (const std::string shard :
       {"../one.safetensors", "/etc/passwd", "..", ".", "", "x/one.safetensors",
        "..\\\\one.safetensors", "one.safetensors\\u0000"}) {
    save_index(R"({"a":")" + shard + "\"}");
    EXPECT_THAT(refusal(), AllOf(StartsWith("Corrupt"), HasSubstr("same folder"))) << shard;
  }
}

TEST_F(CheckpointFolder, RefusesDamagedIndexFiles) {
  save("one.safetensors", {{"a", 1}});
  for (const std::string text :
       {"", "[]", "{}", "3", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})"}) {
    write("model.safetensors.index.json", text);
    EXPECT_THAT(refusal(), AllOf(StartsWith("Corrupt"), HasSubstr("index.json"))) << text;
  }
}

TEST_F(CheckpointFolder, SaysWhatAFolderLacks) {
  EXPECT_THAT(refusal(), AllOf(StartsWith("NotFound"), HasSubstr("model.safetensors")));
  write("pytorch_model.bin", "");
  EXPECT_THAT(refusal(), HasSubstr("convert it to safetensors"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(path("nowhere")); }), StartsWith("NotFound"));
}

TEST_F(CheckpointFolder, NamesFileTensorAndShapes) {
  save("model.safetensors", {{"encoder.weight", 1}});
  const Checkpoint checkpoint = Checkpoint::open(folder_);
  EXPECT_THAT(
      error_of([&] { checkpoint.require("encoder.wieght"); }),
      AllOf(StartsWith("NotFound: " + folder_), HasSubstr("did you mean \"encoder.weight\"?")));
  EXPECT_THAT(error_of([&] { checkpoint.require("encoder.weight", {7}); }),
              AllOf(StartsWith("Corrupt: " + path("model.safetensors")),
                    HasSubstr("expected shape [7], got []")));
}

TEST_F(CheckpointFolder, GivesTiedWeightsTwoNames) {
  save("model.safetensors", {{"embed", 1}, {"own", 2}});
  Checkpoint checkpoint = Checkpoint::open(folder_);
  checkpoint.add_alias("head", "embed");
  EXPECT_EQ(checkpoint.require("head").data, checkpoint.require("embed").data);
  EXPECT_THAT(checkpoint.names(), ElementsAre("embed", "head", "own"));
  checkpoint.add_alias("own", "embed");  // stored itself: kept
  EXPECT_EQ(value_of(checkpoint.require("own")), 2);
  EXPECT_THAT(error_of([&] { checkpoint.add_alias("x", "missing"); }), StartsWith("NotFound"));
}

TEST_F(CheckpointFolder, KeepsTheMapsWhileACopyLives) {
  save("model.safetensors", {{"a", 5}});
  const Checkpoint copy = [&] {
    const Checkpoint original = Checkpoint::open(folder_);
    return Checkpoint(original);
  }();
  EXPECT_EQ(value_of(copy.require("a")), 5);
}

}  // namespace
}  // namespace stof
