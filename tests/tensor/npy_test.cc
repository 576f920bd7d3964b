#include "stof/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "raw_file.h"

namespace stof {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// Version, header and data as given, without NumPy's padding.
std::string raw_npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}

Tensor parse(const std::string& file) { return parse_npy(to_bytes(file), "some.npy"); }

std::string refusal(const std::string& header, const std::string& data = "") {
  return error_of([&] { parse(raw_npy(header, data)); });
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

/// Little-endian int16 values 0, 1, 2, ...
std::string int16_data(int count) {
  std::string data;
  for (int i = 0; i < count; ++i) data.append(1, static_cast<char>(i)).append(1, '\0');
  return data;
}

TEST(Npy, ReadsAllThreeVersions) {
  for (const int version : {1, 2, 3}) {
    const Tensor tensor = parse(raw_npy(dict("'<i2'", "(2, 3)"), int16_data(6), version));
    EXPECT_EQ(tensor.shape(), (Dims{2, 3}));
    EXPECT_THAT(tensor.as<std::int16_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST(Npy, BringsFortranOrderToRows) {
  const Tensor matrix = parse(raw_npy(dict("'<i2'", "(2, 3)", "True"), int16_data(6)));
  EXPECT_THAT(matrix.as<std::int16_t>(), ElementsAre(0, 2, 4, 1, 3, 5));
  const Tensor cube = parse(raw_npy(dict("'<i2'", "(2, 2, 2)", "True"), int16_data(8)));
  EXPECT_THAT(cube.as<std::int16_t>(), ElementsAre(0, 4, 2, 6, 1, 5, 3, 7));
}

TEST(Npy, ReadsEveryDTypeUnderItsName) {
  const std::pair<const char*, DType> kNames[] = {
      {"'<f8'", DType::kFloat64}, {"'<f4'", DType::kFloat32}, {"'<f2'", DType::kFloat16},
      {"'<i8'", DType::kInt64},   {"'<i4'", DType::kInt32},   {"'<i2'", DType::kInt16},
      {"'|i1'", DType::kInt8},    {"'<u8'", DType::kUInt64},  {"'<u4'", DType::kUInt32},
      {"'<u2'", DType::kUInt16},  {"'|u1'", DType::kUInt8},   {"'|b1'", DType::kBool},
      {"'<u1'", DType::kUInt8},
  };
  for (const auto& [name, dtype] : kNames) {
    const std::string data(3 * dtype_bytes(dtype), '\1');
    EXPECT_EQ(parse(raw_npy(dict(name, "(3,)"), data)).dtype(), dtype) << name;
  }
}

TEST(Npy, TakesOtherSpellingsOfTheDictionary) {
  EXPECT_EQ(parse(raw_npy(R"({"shape":(),"fortran_order":False,"descr":"|u1"})", "x")).shape(),
            Dims{});
  EXPECT_EQ(parse(raw_npy(dict("'|u1'", "(1, 2,)"), "xy")).shape(), (Dims{1, 2}));
  EXPECT_EQ(parse(raw_npy(dict("'|u1'", "(0, 7)"), "")).shape(), (Dims{0, 7}));
}

TEST(Npy, WritesTheBytesThatNumPyWrites) {
  // numpy.save of zeros((2, 3), float32), zeros(5, bool) and float64(0): 128 bytes of header.
  const auto expected = [](const std::string& dictionary, std::size_t data_bytes) {
    std::string file = std::string("\x93NUMPY\x01\x00v\x00", 10) + dictionary;
    file.resize(127, ' ');
    file += '\n';
    file.resize(128 + data_bytes, '\0');
    return to_bytes(file);
  };
  EXPECT_EQ(serialize_npy(Tensor(DType::kFloat32, {2, 3}).view()),
            expected("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24));
  EXPECT_EQ(serialize_npy(Tensor(DType::kBool, {5}).view()),
            expected("{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }", 5));
  EXPECT_EQ(serialize_npy(Tensor(DType::kFloat64, {}).view()),
            expected("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8));
}

TEST(Npy, RefusesToWriteWhatNumPyLacks) {
  EXPECT_THAT(error_of([] { serialize_npy(Tensor(DType::kBFloat16, {1}).view()); }),
              AllOf(StartsWith("Unsupported"), HasSubstr("bfloat16")));
}

TEST(Npy, IsCorruptWhenTruncatedAtAnyByte) {
  const std::vector<std::byte> whole = serialize_npy(Tensor(DType::kFloat16, {3, 5}).view());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::span<const std::byte> part(whole.data(), size);
    EXPECT_THAT(error_of([&] { parse_npy(part, "cut.npy"); }), StartsWith("Corrupt: cut.npy: "));
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THAT(error_of([&] { parse_npy(longer, "long.npy"); }),
              HasSubstr("takes 30 bytes of data, got 31"));
}

TEST(Npy, RefusesForeignDTypesByName) {
  EXPECT_THAT(refusal(dict("'>f4'", "(1,)"), "1234"),
              AllOf(StartsWith("Unsupported"), HasSubstr("\">f4\""), HasSubstr("big-endian")));
  for (const std::string descr :
       {"|O", "<U5", "|S3", "<c8", "<M8[ns]", "<V2", "<f16", "=f4", "f4", "|f4", ""})
    EXPECT_THAT(refusal(dict("'" + descr + "'", "(1,)"), "1234"),
                AllOf(StartsWith("Unsupported"), HasSubstr("\"" + descr + "\"")));
  EXPECT_THAT(refusal(dict("[('x', '<f4')]", "(1,)"), "1234"), HasSubstr("structured"));
}

TEST(Npy, RefusesVersionsItDoesNotKnow) {
  EXPECT_THAT(error_of([] { parse(raw_npy(dict("'|u1'", "()"), "x", 4)); }),
              AllOf(StartsWith("Unsupported"), HasSubstr("4.0")));
  EXPECT_THAT(error_of([] { parse("PK\x03\x04 a zip file"); }), StartsWith("Corrupt"));
}

TEST(Npy, RefusesDamagedHeaders) {
  const auto corrupt = [](const std::string& header, const std::string& part) {
    EXPECT_THAT(refusal(header, "x"),
                AllOf(StartsWith("Corrupt: some.npy: header"), HasSubstr(part)))
        << header;
  };
  corrupt("", "expected '{'");
  corrupt("{", "a quoted key");
  corrupt("{}", "descr is missing");
  corrupt("{'descr': '|u1', 'shape': ()}", "fortran_order is missing");
  corrupt("{'descr': '|u1', 'fortran_order': False}", "shape is missing");
  corrupt("{'descr': '|u1', 'descr': '|u1'}", "descr appears twice");
  corrupt("{'descr': '|u1', 'extra': 1}", "\"extra\"");
  corrupt("{'descr': '|u1' 'shape': ()}", "expected ','");
  corrupt("{'descr", "closing quote");
  corrupt(dict("'|u1'", "()") + "x", "nothing after");
  corrupt(dict("'|u1'", "()") + std::string(1, '\0'), "nothing after");
  corrupt(dict("'|u1'", "()", "false"), "True or False");
  corrupt(dict("'|u1'", "(1)"), "','");
  corrupt(dict("'|u1'", "1"), "'('");
  corrupt(dict("'|u1'", "(,)"), "whole number");
  corrupt(dict("'|u1'", "(-1,)"), "whole number");
  corrupt(dict("'|u1'", "(1.5,)"), "','");
  corrupt(dict("'|u1'", "(1L,)"), "','");
  corrupt(dict("'|u1'", "(9223372036854775808,)"), "whole number");
  corrupt(dict("'|u1'", "(__import__('os'),)"), "whole number");
}

TEST(Npy, RefusesShapesThatTheDataContradicts) {
  const auto with_shape = [](const std::string& descr, const std::string& shape) {
    return refusal(dict("'" + descr + "'", shape), std::string(8, '\0'));
  };
  EXPECT_THAT(with_shape("<f4", "(3,)"), AllOf(StartsWith("Corrupt"), HasSubstr("takes 12 bytes")));
  EXPECT_THAT(with_shape("<f8", "(2,)"), HasSubstr("takes 16 bytes"));
  // The product is 0, and then 8, modulo 2^64.
  EXPECT_THAT(with_shape("<f4", "(4611686018427387904, 4)"), HasSubstr("2^63 bytes"));
  EXPECT_THAT(with_shape("|u1", "(2305843009213693953, 8)"), HasSubstr("2^63 bytes"));
  EXPECT_THAT(with_shape("|u1", "(0, 4611686018427387904, 4)"), HasSubstr("2^63 bytes"));
  EXPECT_THAT(with_shape("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 8)"), StartsWith("Unsupported"));
  // A header length of 2^32-1.
  const std::string huge =
      std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + dict("'|u1'", "()");
  EXPECT_THAT(error_of([&] { parse(huge); }),
              AllOf(StartsWith("Corrupt"), HasSubstr("4294967295")));
}

TEST(Npy, RefusesBooleansOtherThan0And1) {
  EXPECT_THAT(refusal(dict("'|b1'", "(3,)"), std::string("\0\1\2", 3)),
              AllOf(StartsWith("Corrupt"), HasSubstr("got 2 as element 2")));
}

using NpyFolder = FolderTest;

TEST_F(NpyFolder, SavesAndLoads) {
  Tensor tensor(DType::kInt64, {2, 2});
  for (int i = 0; i < 4; ++i) tensor.as<std::int64_t>()[static_cast<std::size_t>(i)] = i - 2;
  save_npy(path("a.npy"), {tensor.data(), DType::kInt64, {2, 2}, {1, 2}});
  EXPECT_THAT(load_npy(path("a.npy")).as<std::int64_t>(), ElementsAre(-2, 0, -1, 1));
  EXPECT_THAT(error_of([&] { load_npy(path("none.npy")); }), StartsWith("NotFound"));
  EXPECT_THAT(error_of([&] { load_npy(write("empty.npy", "")); }), StartsWith("Corrupt"));
}

RC_GTEST_PROP(Npy, RoundTripsAnyContent, ()) {
  const DType dtype = *rc::gen::element(DType::kFloat16, DType::kFloat64, DType::kInt8,
                                        DType::kUInt32, DType::kInt64);
  Dims shape;
  const int rank = *rc::gen::inRange(0, Dims::kMaxRank + 1);
  for (int i = 0; i < rank; ++i) shape.push_back(*rc::gen::inRange<std::int64_t>(0, 4));
  Tensor tensor(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(tensor.data());
  for (std::size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(i * 37);
  const Tensor again = parse_npy(serialize_npy(tensor.view()), "t");
  RC_ASSERT(again.dtype() == dtype);
  RC_ASSERT(again.shape() == shape);
  RC_ASSERT(std::memcmp(again.data(), tensor.data(), tensor.bytes()) == 0);
}

}  // namespace
}  // namespace stof
