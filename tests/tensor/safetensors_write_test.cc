#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <iterator>
#include <map>
#include <set>

#include "raw_file.h"
#include "stof/safetensors.h"

namespace stof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

using SafetensorsFolder = FolderTest;

TEST_F(SafetensorsFolder, WritesWhatItSerialises) {
  Tensor tensor(DType::kFloat32, {2});
  tensor.as<float>()[1] = 2.5f;
  const NamedTensor named[] = {{"w", tensor.view()}};
  save_safetensors(path("a.safetensors"), named, {{"format", "pt"}});
  EXPECT_EQ(to_bytes(read_whole(path("a.safetensors"))),
            serialize_safetensors(named, {{"format", "pt"}}));
  const SafetensorsFile opened = SafetensorsFile::open(path("a.safetensors"));
  EXPECT_EQ(Tensor::copy_of(opened.require("w")).as<float>()[1], 2.5f);
  EXPECT_EQ(opened.path(), path("a.safetensors"));
}

TEST_F(SafetensorsFolder, KeepsTheMapWhileACopyLives) {
  Tensor tensor(DType::kInt32, {1});
  tensor.as<std::int32_t>()[0] = 42;
  const NamedTensor named[] = {{"w", tensor.view()}};
  save_safetensors(path("a.safetensors"), named);
  const SafetensorsFile copy = [&] {
    return SafetensorsFile(SafetensorsFile::open(path("a.safetensors")));
  }();
  save_safetensors(path("a.safetensors"), {});  // a new file under the name; the map is the old one
  EXPECT_EQ(Tensor::copy_of(copy.require("w")).as<std::int32_t>()[0], 42);
}

TEST_F(SafetensorsFolder, LeavesNothingBehindWhenItFails) {
  const Tensor tensor(DType::kInt8, {1});
  const NamedTensor twice[] = {{"w", tensor.view()}, {"w", tensor.view()}};
  EXPECT_THAT(error_of([&] { save_safetensors(path("a.safetensors"), twice); }),
              StartsWith("InvalidArgument"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SafetensorsFolder, NamesMissingFiles) {
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(path("none.safetensors")); }),
              StartsWith("NotFound: " + path("none.safetensors")));
  write("empty.safetensors", "");
  EXPECT_THAT(error_of([&] { SafetensorsFile::open(path("empty.safetensors")); }),
              StartsWith("Corrupt"));
}

TEST(SafetensorsWriter, GivesTheSameBytesInAnyOrder) {
  const Tensor a(DType::kInt8, {3}), b(DType::kFloat64, {1}), c(DType::kInt8, {5});
  const NamedTensor one[] = {{"a", a.view()}, {"b", b.view()}, {"c", c.view()}};
  const NamedTensor other[] = {{"c", c.view()}, {"a", a.view()}, {"b", b.view()}};
  EXPECT_EQ(serialize_safetensors(one), serialize_safetensors(other));
}

TEST(SafetensorsWriter, AlignsHeaderAndEveryTensor) {
  for (std::size_t length = 1; length < 20; ++length) {
    const Tensor odd(DType::kInt8, {3}), wide(DType::kInt64, {1}), half(DType::kBFloat16, {1});
    const NamedTensor named[] = {
        {std::string(length, 'a'), odd.view()}, {"w", wide.view()}, {"h", half.view()}};
    const std::vector<std::byte> bytes = serialize_safetensors(named);
    EXPECT_EQ(std::to_integer<int>(bytes[0]) % 8, 0);
    const SafetensorsFile file = SafetensorsFile::from_bytes(bytes, "t");
    for (const auto& [name, view] : file.tensors()) EXPECT_TRUE(view.is_aligned()) << name;
  }
}

TEST(SafetensorsWriter, WritesStridedViewsRowMajor) {
  const float data[] = {0, 1, 2, 3, 4, 5};
  const NamedTensor named[] = {{"t", {data, DType::kFloat32, {3, 2}, {1, 3}}}};
  const std::vector<std::byte> bytes = serialize_safetensors(named);
  const Tensor read = Tensor::copy_of(SafetensorsFile::from_bytes(bytes, "t").require("t"));
  EXPECT_THAT(read.as<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(SafetensorsWriter, RefusesNamesTheFormatCannotHold) {
  const Tensor tensor(DType::kInt8, {1});
  const auto refusal = [&](const std::string& name, const Metadata& metadata) {
    const NamedTensor named[] = {{name, tensor.view()}};
    return error_of([&] { serialize_safetensors(named, metadata); });
  };
  EXPECT_THAT(refusal("\xff", {}), HasSubstr("expected UTF-8"));
  EXPECT_THAT(refusal("w", {{"\xff", ""}}), HasSubstr("expected UTF-8"));
  EXPECT_THAT(refusal("w", {{"k", "\xff"}}), HasSubstr("expected UTF-8"));
  EXPECT_THAT(refusal("__metadata__", {}), HasSubstr("reserved"));
}

RC_GTEST_PROP(SafetensorsWriter, RoundTripsAnyContent, ()) {
  const auto text = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  Metadata metadata;
  for (const auto& [key, value] :
       *rc::gen::container<std::map<std::string, std::string>>(text, text))
    metadata.emplace(key, value);
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : *rc::gen::container<std::set<std::string>>(text)) {
    if (name == "__metadata__") continue;
    const auto dtype =
        static_cast<DType>(*rc::gen::inRange(0, static_cast<int>(DType::kInt64) + 1));
    Dims shape;
    const int rank = *rc::gen::inRange(0, 4);
    for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange<std::int64_t>(0, 4));
    Tensor tensor(dtype, shape);
    auto* bytes = static_cast<unsigned char*>(tensor.data());
    for (std::size_t i = 0; i < tensor.bytes(); ++i)
      bytes[i] =
          static_cast<unsigned char>(dtype == DType::kBool ? i % 2 : name.size() * 31 + i * 7);
    tensors.emplace(name, std::move(tensor));
  }
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor.view()});

  const std::vector<std::byte> bytes = serialize_safetensors(named, metadata);
  const SafetensorsFile file = SafetensorsFile::from_bytes(bytes, "t");
  RC_ASSERT(file.metadata() == metadata);
  RC_ASSERT(file.tensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const TensorView view = file.require(name, tensor.dtype(), tensor.shape());
    RC_ASSERT(std::memcmp(view.data, tensor.data(), tensor.bytes()) == 0);
  }
}

}  // namespace
}  // namespace stof
