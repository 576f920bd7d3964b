#include "stof/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

#include "raw_file.h"

namespace stof {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Length, header, data: as the format lays them out.
std::string raw_file(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i % 2);
  return file;
}

std::string refused_file(const std::string& file) {
  const std::vector<std::byte> bytes = to_bytes(file);
  return error_of([&] { SafetensorsFile::from_bytes(bytes, "some.safetensors"); });
}

std::string refused_file(const std::string& header, std::size_t data_bytes) {
  return refused_file(raw_file(header, data_bytes));
}

TEST(Safetensors, ReadsAHandMadeFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I16","shape":[2],"data_offsets":[8,12]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}   )";
  std::string file = raw_file(header, 0);
  file += std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x01\x00\xff\xff", 12);
  const std::vector<std::byte> bytes = to_bytes(file);
  const SafetensorsFile opened = SafetensorsFile::from_bytes(bytes, "test");
  EXPECT_EQ(opened.metadata(), (Metadata{{"format", "pt"}}));
  ASSERT_EQ(opened.tensors().size(), 2u);
  const Tensor a = Tensor::copy_of(opened.require("a", {1, 2}));
  const Tensor b = Tensor::copy_of(opened.require("b", DType::kInt16, {2}));
  EXPECT_EQ(a.as<float>()[0], 1.0f);
  EXPECT_EQ(a.as<float>()[1], -2.0f);
  EXPECT_EQ(b.as<std::int16_t>()[0], 1);
  EXPECT_EQ(b.as<std::int16_t>()[1], -1);
}

TEST(Safetensors, ReadsEveryDTypeUnderItsName) {
  const std::pair<const char*, DType> kNames[] = {
      {"F64", DType::kFloat64},   {"F32", DType::kFloat32},        {"F16", DType::kFloat16},
      {"BF16", DType::kBFloat16}, {"F8_E4M3", DType::kFloat8E4M3}, {"F8_E5M2", DType::kFloat8E5M2},
      {"I64", DType::kInt64},     {"I32", DType::kInt32},          {"I16", DType::kInt16},
      {"I8", DType::kInt8},       {"U64", DType::kUInt64},         {"U32", DType::kUInt32},
      {"U16", DType::kUInt16},    {"U8", DType::kUInt8},           {"BOOL", DType::kBool}};
  for (const auto& [name, dtype] : kNames) {
    const std::size_t bytes = 3 * dtype_bytes(dtype);
    const std::string header = std::string(R"({"x":{"dtype":")") + name +
                               R"(","shape":[3],"data_offsets":[0,)" + std::to_string(bytes) +
                               "]}}";
    const std::vector<std::byte> file = to_bytes(raw_file(header, bytes));
    EXPECT_EQ(SafetensorsFile::from_bytes(file, "test").require("x").dtype, dtype) << name;
  }
}

TEST(Safetensors, ReadsFilesWithoutTensorsScalarsAndEmptyTensors) {
  EXPECT_EQ(SafetensorsFile::from_bytes(to_bytes(raw_file("{}", 0)), "t").tensors().size(), 0u);
  const std::vector<std::byte> file = to_bytes(raw_file(
      R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"e":{"dtype":"F32","shape":[0,4],"data_offsets":[1,1]}})",
      1));
  const SafetensorsFile opened = SafetensorsFile::from_bytes(file, "t");
  EXPECT_EQ(opened.require("s").shape, Dims{});
  EXPECT_EQ(opened.require("e").shape, (Dims{0, 4}));
  EXPECT_TRUE(opened.require("e").defined());
}

TEST(Safetensors, IsCorruptWhenTruncatedAtAnyByte) {
  const Tensor tensor(DType::kFloat32, {3, 5});
  const NamedTensor named[] = {{"weight", tensor.view()}, {"bias", tensor.view()}};
  const std::vector<std::byte> whole = serialize_safetensors(named, {{"k", "v"}});
  ASSERT_NO_THROW(SafetensorsFile::from_bytes(whole, "t"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(),
                                      whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(error_of([&] { SafetensorsFile::from_bytes(part, "cut.safetensors"); }),
                StartsWith("Corrupt: cut.safetensors: "));
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THAT(error_of([&] { SafetensorsFile::from_bytes(longer, "t"); }),
              HasSubstr("expected 120 bytes of data"));
}

TEST(Safetensors, RefusesClaimedHeaderLengths) {
  const auto with_length = [](std::uint64_t length) {
    std::string file = raw_file("{}", 0);
    for (int i = 0; i < 8; ++i)
      file[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i) & 0xff);
    return refused_file(file);
  };
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1} << 31, std::uint64_t{1} << 63, ~std::uint64_t{0},
        ~std::uint64_t{0} - 7})
    EXPECT_THAT(with_length(length),
                AllOf(StartsWith("Corrupt"), HasSubstr(std::to_string(length))));
  EXPECT_THAT(with_length(0), HasSubstr("starts with '{'"));
}

TEST(Safetensors, RefusesDamagedHeaders) {
  EXPECT_THAT(refused_file(" {}", 0), HasSubstr("starts with '{'"));
  EXPECT_THAT(refused_file("\xef\xbb\xbf{}", 0), HasSubstr("starts with '{'"));
  EXPECT_THAT(refused_file("[]", 0), HasSubstr("starts with '{'"));
  EXPECT_THAT(refused_file("{} {}", 0), HasSubstr("invalid JSON at byte 4"));
  EXPECT_THAT(refused_file(std::string("{}\0\0", 4), 0), HasSubstr("zero byte at byte 2"));
  EXPECT_THAT(refused_file("{\"\xff\":{}}", 0), HasSubstr("invalid JSON"));
  const std::string deep = "{\"a\":" + std::string(50000, '[') + std::string(50000, ']') + "}";
  EXPECT_THAT(refused_file(deep, 0), HasSubstr("tensor \"a\": expected an object, got a list"));
}

TEST(Safetensors, RefusesHeadersOfAnotherForm) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return refused_file("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                            ",\"data_offsets\":" + offsets + "}}",
                        8);
  };
  EXPECT_THAT(entry("\"F12\"", "[2]", "[0,8]"), AllOf(StartsWith("Corrupt"), HasSubstr("F12")));
  EXPECT_THAT(entry("\"C64\"", "[1]", "[0,8]"), AllOf(StartsWith("Unsupported"), HasSubstr("C64")));
  EXPECT_THAT(entry("32", "[2]", "[0,8]"), HasSubstr("dtype: expected a string, got a number"));
  EXPECT_THAT(entry("[]", "[2]", "[0,8]"), HasSubstr("dtype: expected a string, got a list"));
  EXPECT_THAT(entry("\"F32\"", "2", "[0,8]"), HasSubstr("shape: expected a list, got a number"));
  EXPECT_THAT(entry("\"F32\"", "[-2]", "[0,8]"), HasSubstr("got a negative number"));
  EXPECT_THAT(entry("\"F32\"", "[2.0]", "[0,8]"), HasSubstr("no 64-bit integer"));
  EXPECT_THAT(entry("\"F32\"", "[18446744073709551618]", "[0,8]"), HasSubstr("no 64-bit integer"));
  EXPECT_THAT(entry("\"F32\"", "[[2]]", "[0,8]"), HasSubstr("got a list"));
  EXPECT_THAT(entry("\"F32\"", "[\"2\"]", "[0,8]"), HasSubstr("got a string"));
  EXPECT_THAT(entry("\"F32\"", "[null]", "[0,8]"), HasSubstr("got null"));
  EXPECT_THAT(entry("\"F32\"", "[true]", "[0,8]"), HasSubstr("got a boolean"));
  EXPECT_THAT(entry("\"F32\"", "[2]", "[0]"), HasSubstr("expected 2 numbers, got 1"));
  EXPECT_THAT(entry("\"F32\"", "[2]", "[0,8,8]"), HasSubstr("expected 2 numbers"));
  EXPECT_THAT(entry("\"F32\"", "[2]", "{}"), HasSubstr("got an object"));
  EXPECT_THAT(entry("\"U8\"", "[1,1,1,1,1,1,1,1,8]", "[0,8]"), StartsWith("Unsupported"));
  EXPECT_THAT(refused_file(R"({"t":{"dtype":"F32","shape":[2]}})", 8),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(refused_file(R"({"t":{"shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("dtype is missing"));
  EXPECT_THAT(refused_file(R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", 8),
              HasSubstr("shape is missing"));
  EXPECT_THAT(refused_file(R"({"t":{"dtype":"F32","extra":1}})", 8), HasSubstr("\"extra\""));
  EXPECT_THAT(refused_file(R"({"__metadata__":{"a":1}})", 0),
              HasSubstr("__metadata__: expected a string"));
  EXPECT_THAT(refused_file(R"({"__metadata__":[]})", 0),
              HasSubstr("__metadata__: expected an object"));
}

TEST(Safetensors, RefusesRepeatedNames) {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refused_file("{\"t\":" + entry + ",\"t\":" + entry + "}", 0),
              HasSubstr("name \"t\" appears twice"));
  EXPECT_THAT(refused_file("{\"t\":" + entry + ",\"\\u0074\":" + entry + "}", 0),
              HasSubstr("name \"t\" appears twice"));
  EXPECT_THAT(refused_file(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(refused_file(R"({"__metadata__":{},"__metadata__":{}})", 0),
              HasSubstr("appears twice"));
  EXPECT_THAT(refused_file(R"({"t":{"dtype":"U8","dtype":"U8"}})", 0),
              HasSubstr("dtype appears twice"));
}

/// Two U8 tensors "a" and "b" with the given offsets over 8 bytes of data.
std::string refused_layout(int a0, int a1, int b0, int b1) {
  const auto entry = [](int begin, int end) {
    const std::string shape = std::to_string(std::max(end - begin, 0));
    return R"({"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) +
           "," + std::to_string(end) + "]}";
  };
  return refused_file("{\"a\":" + entry(a0, a1) + ",\"b\":" + entry(b0, b1) + "}", 8);
}

TEST(Safetensors, RefusesOverlapsGapsAndRangesOutside) {
  EXPECT_THAT(refused_layout(0, 5, 4, 8),
              HasSubstr("\"b\" starts at byte 4 of the data, inside tensor \"a\""));
  EXPECT_THAT(refused_layout(0, 8, 0, 8), HasSubstr("inside tensor \"a\""));
  EXPECT_THAT(refused_layout(0, 3, 4, 8),
              HasSubstr("bytes 3 to 4 of the data, before tensor \"b\""));
  EXPECT_THAT(refused_layout(1, 4, 4, 8), HasSubstr("bytes 0 to 1"));
  EXPECT_THAT(refused_layout(0, 4, 4, 7), HasSubstr("expected 7 bytes of data"));
  EXPECT_THAT(refused_layout(0, 4, 4, 9), HasSubstr("data_offsets [4, 9]"));
  EXPECT_THAT(refused_layout(0, 4, 8, 4), HasSubstr("data_offsets [8, 4]"));
}

TEST(Safetensors, RefusesMislabelledDTypesAndHugeShapes) {
  const auto entry = [](const std::string& dtype, const std::string& shape) {
    return refused_file(
        R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,8]}})", 8);
  };
  EXPECT_THAT(entry("F64", "[2]"), AllOf(StartsWith("Corrupt"), HasSubstr("F64[2] takes 16")));
  EXPECT_THAT(entry("BF16", "[2]"), HasSubstr("BF16[2] takes 4"));
  // 2^62 * 4 * 4 and 2^61 * 8 are 0 modulo 2^64; the third wraps to exactly 8.
  EXPECT_THAT(entry("F32", "[4611686018427387904, 4]"), HasSubstr("more than 2^63"));
  EXPECT_THAT(entry("F64", "[2305843009213693952]"), HasSubstr("more than 2^63"));
  EXPECT_THAT(entry("U8", "[2305843009213693953, 8]"), HasSubstr("more than 2^63"));
  EXPECT_THAT(entry("F32", "[9223372036854775808]"), HasSubstr("below 2^63"));
  EXPECT_THAT(
      refused_file(
          R"({"t":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0),
      StartsWith("Corrupt"));
}

TEST(Safetensors, RefusesBooleansOtherThan0And1) {
  std::string file = raw_file(R"({"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3);
  EXPECT_NO_THROW(SafetensorsFile::from_bytes(to_bytes(file), "t"));
  file.back() = 2;
  EXPECT_THAT(refused_file(file), AllOf(StartsWith("Corrupt"), HasSubstr("got 2 as element 2")));
}

/// Peak resident memory of the process so far.
long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Safetensors, AllocatesNothingOfClaimedSizes) {
  const long before = peak_kib();
  // 2^40 elements, and a file name of nothing: each would need terabytes if believed.
  EXPECT_THAT(
      refused_file(
          R"({"t":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})", 8),
      StartsWith("Corrupt"));
  EXPECT_THAT(refused_file(std::string("\0\0\0\0\0\x01\0\0{}", 10)), StartsWith("Corrupt"));
  EXPECT_LT(peak_kib() - before, 64 << 10);
}

TEST(Safetensors, NamesFileTensorAndBothShapes) {
  const Tensor tensor(DType::kFloat32, {2, 3});
  const NamedTensor named[] = {{"encoder.layer.0.weight", tensor.view()}};
  const std::vector<std::byte> bytes = serialize_safetensors(named);
  const SafetensorsFile file = SafetensorsFile::from_bytes(bytes, "m.safetensors");
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(error_of([&] { file.require("encoder.layer.0.wieght"); }),
              AllOf(StartsWith("NotFound: m.safetensors: "),
                    HasSubstr("did you mean \"encoder.layer.0.weight\"?")));
  EXPECT_THAT(error_of([&] {
                file.require("encoder.layer.0.weight", {3, 2});
              }),
              AllOf(StartsWith("Corrupt: m.safetensors: tensor \"encoder.layer.0.weight\""),
                    HasSubstr("expected shape [3, 2], got [2, 3]")));
  EXPECT_THAT(error_of([&] {
                file.require("encoder.layer.0.weight", DType::kInt8, {2, 3});
              }),
              HasSubstr("expected dtype int8, got float32"));
}

}  // namespace
}  // namespace stof
