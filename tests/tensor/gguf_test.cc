#include "stof/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "raw_file.h"
#include "stof/checkpoint.h"

namespace stof {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kGolden = std::string(STOF_TEST_DATA) + "/gguf_golden";

/// The bytes of a file, made piece by piece.
struct Bytes {
  std::string text = "GGUF";

  template <class T>
  Bytes& add(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Bytes& add_text(const std::string& value) {
    add<std::uint64_t>(value.size());
    text += value;
    return *this;
  }
  Bytes& header(std::uint64_t num_tensors, std::uint64_t num_values, std::uint32_t version = 3) {
    return add(version).add(num_tensors).add(num_values);
  }
  Bytes& tensor(const std::string& name, std::vector<std::uint64_t> extents, std::uint32_t type,
                std::uint64_t offset) {
    add_text(name).add(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) add(extent);
    return add(type).add(offset);
  }
  Bytes& data(std::size_t bytes) {
    text.append((32 - text.size() % 32) % 32, '\0');
    text.append(bytes, '\0');
    return *this;
  }
  std::string refusal() const {
    return error_of([this] { GgufFile::from_bytes(to_bytes(text), "x.gguf"); });
  }
};

std::string golden_bytes() {
  std::ifstream file(kGolden + ".gguf", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Gguf, DequantisesEveryTypeAsNumpyDoes) {
  const GgufFile file = GgufFile::open(kGolden + ".gguf");
  const Checkpoint checkpoint = Checkpoint::open(kGolden + ".gguf");
  const SafetensorsFile golden = SafetensorsFile::open(kGolden + ".safetensors");
  ASSERT_EQ(file.tensors().size(), 11u);
  ASSERT_EQ(golden.tensors().size(), 11u);
  for (const auto& [name, stored] : file.tensors()) {
    EXPECT_EQ(to_string(stored.type), name);
    const Tensor expected = Tensor::copy_of(golden.require(name, stored.shape));
    float largest = 0;
    for (const float value : expected.as<float>()) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0);
    for (const Tensor& read : {file.float32(name), checkpoint.float32(name, stored.shape)})
      for (std::size_t i = 0; i < expected.as<float>().size(); ++i)
        EXPECT_NEAR(read.as<float>()[i], expected.as<float>()[i], 1e-6f * largest) << name << i;
  }
}

TEST(Gguf, ReadsEveryMetadataType) {
  const GgufFile file = GgufFile::open(kGolden + ".gguf");
  const auto integer = [&](const char* key) {
    return std::get<std::int64_t>(file.metadata().find(key)->second);
  };
  EXPECT_EQ(file.metadata().size(), 16u);
  EXPECT_EQ(integer("g.u8"), 200);
  EXPECT_EQ(integer("g.i8"), -100);
  EXPECT_EQ(integer("g.u16"), 60000);
  EXPECT_EQ(integer("g.i16"), -30000);
  EXPECT_EQ(integer("general.alignment"), 64);
  EXPECT_EQ(integer("g.i32"), -(std::int64_t{1} << 31));
  EXPECT_EQ(integer("g.u64"), std::int64_t{1} << 62);
  EXPECT_EQ(integer("g.i64"), -(std::int64_t{1} << 62));
  const auto get = [&](const char* key) { return file.metadata().find(key)->second; };
  EXPECT_EQ(get("g.f32"), GgufValue(0.5));
  EXPECT_EQ(get("g.f64"), GgufValue(0.1));
  EXPECT_EQ(get("g.bool"), GgufValue(true));
  EXPECT_EQ(get("general.architecture"), GgufValue(std::string("golden")));
  EXPECT_EQ(get("g.strings"), GgufValue(std::vector<std::string>{"a", "", "\u0120the"}));
  EXPECT_EQ(get("g.integers"), GgufValue(std::vector<std::int64_t>{1, -2}));
  EXPECT_EQ(get("g.floats"), GgufValue(std::vector<double>{0.25, -2}));
  EXPECT_EQ(get("g.booleans"), GgufValue(std::vector<bool>{true, false}));
}

TEST(Gguf, ACheckpointViewsPlainTensorsAndDequantisesTheOthers) {
  const Checkpoint checkpoint = Checkpoint::open(kGolden + ".gguf");
  EXPECT_EQ(checkpoint.names().size(), 11u);
  EXPECT_TRUE(checkpoint.contains("Q4_K"));
  ASSERT_NE(checkpoint.gguf(), nullptr);
  EXPECT_EQ(checkpoint.require("F16", {2, 3, 4}).dtype, DType::kFloat16);
  EXPECT_EQ(checkpoint.find("nothing"), nullptr);
  EXPECT_THAT(error_of([&] { checkpoint.require("Q4_K"); }),
              AllOf(StartsWith("Unsupported"), HasSubstr("Q4_K"), HasSubstr("float32")));
  EXPECT_THAT(error_of([&] {
                checkpoint.float32("Q4_1", {64, 2});
              }),
              AllOf(StartsWith("Corrupt"), HasSubstr("[64, 2]"), HasSubstr("[2, 64]")));
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = golden_bytes();
  const auto read = [](std::span<const std::byte> bytes) {
    GgufFile::from_bytes(bytes, "cut.gguf");
  };
  const std::vector<std::byte> bytes = to_bytes(whole);
  read(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A buffer of exactly that size, so that a sanitizer sees what is read past it.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
    EXPECT_THAT(error_of([&] { read(cut); }),
                AllOf(StartsWith("Corrupt: cut.gguf: "), HasSubstr("expected"), HasSubstr("got")));
  }
}

TEST(Gguf, RefusesOtherFormatsAndVersions) {
  Bytes other;
  other.text = "GGML";
  EXPECT_THAT(other.header(0, 0).refusal(), AllOf(StartsWith("Corrupt"), HasSubstr("\"GGML\"")));
  EXPECT_THAT(Bytes().header(0, 0, 1).refusal(),
              AllOf(StartsWith("Unsupported"), HasSubstr("2 or 3")));
  EXPECT_THAT(Bytes().header(0, 0, 0x03000000).refusal(), HasSubstr("big-endian"));
}

TEST(Gguf, RefusesWrongMetadata) {
  EXPECT_THAT(Bytes().header(0, 1).add_text("k").add(13U).refusal(),
              AllOf(StartsWith("Corrupt"), HasSubstr("\"k\" at byte 33"), HasSubstr("got 13")));
  EXPECT_THAT(Bytes().header(0, 1).add_text("k").add(7U).add('\2').refusal(),
              AllOf(StartsWith("Corrupt"), HasSubstr("got 2")));
  EXPECT_THAT(Bytes().header(0, 1).add_text("k").add(10U).add(~0ULL).refusal(),
              AllOf(StartsWith("Unsupported"), HasSubstr("2^63")));
  EXPECT_THAT(Bytes().header(0, 1).add_text("k").add(9U).add(9U).add(0ULL).refusal(),
              AllOf(StartsWith("Unsupported"), HasSubstr("arrays")));
  EXPECT_THAT(Bytes().header(0, 1).add_text("k").add(9U).add(4U).add(1ULL << 60).refusal(),
              AllOf(StartsWith("Corrupt"), HasSubstr("1152921504606846976 elements")));
  const auto twice =
      Bytes().header(0, 2).add_text("k").add(0U).add('\1').add_text("k").add(0U).add('\1');
  EXPECT_THAT(twice.refusal(), HasSubstr("\"k\": expected it once"));
  EXPECT_THAT(Bytes().header(0, 1).add_text("general.alignment").add(4U).add(48U).refusal(),
              AllOf(StartsWith("Corrupt"), HasSubstr("power of two"), HasSubstr("48")));
}

TEST(Gguf, RefusesMislabelledTensors) {
  const auto refusal = [](std::vector<std::uint64_t> extents, std::uint32_t type,
                          std::uint64_t offset, std::size_t data) {
    return Bytes().header(1, 0).tensor("t", std::move(extents), type, offset).data(data).refusal();
  };
  EXPECT_THAT(refusal({4}, 0, 0, 12), AllOf(StartsWith("Corrupt"), HasSubstr("\"t\""),
                                            HasSubstr("byte 16"), HasSubstr("12 bytes")));
  EXPECT_THAT(refusal({4}, 0, 8, 32), HasSubstr("multiple of 32, got 8"));
  EXPECT_THAT(refusal({48}, 2, 0, 64), AllOf(HasSubstr("Q4_0"), HasSubstr("[48]")));
  EXPECT_THAT(refusal({4}, 10, 0, 64),
              AllOf(StartsWith("Unsupported"), HasSubstr("type number 10")));
  EXPECT_THAT(refusal({0}, 0, 0, 64), HasSubstr("at least 1, got 0"));
  EXPECT_THAT(refusal({}, 0, 0, 64), HasSubstr("1 to 4 dimensions, got 0"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 1}, 0, 0, 64), HasSubstr("got 5"));
  EXPECT_THAT(refusal({1ULL << 40, 1ULL << 40}, 0, 0, 64), HasSubstr("2^63"));
  EXPECT_THAT(refusal({1ULL << 63}, 0, 0, 64), HasSubstr("2^63"));
  EXPECT_THAT(refusal({4}, 0, ~31ULL, 64), HasSubstr("18446744073709551600"));
  const auto two = [](const std::string& second, std::uint64_t offset) {
    return Bytes()
        .header(2, 0)
        .tensor("t", {16}, 0, 0)
        .tensor(second, {16}, 0, offset)
        .data(128)
        .refusal();
  };
  EXPECT_THAT(two("t", 64), HasSubstr("\"t\": expected it once"));
  EXPECT_THAT(two("u", 32), AllOf(HasSubstr("\"u\""), HasSubstr("from 64"), HasSubstr("got 32")));
}

}  // namespace
}  // namespace stof
