#include "stof/tensor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "stof/error.h"
#include "tensor/strided.h"

namespace stof {
namespace {

template <class Function>
ErrorCode code_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

std::vector<float> iota(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(Dims, PrintsAndCompares) {
  EXPECT_EQ((Dims{2, 12, 512, 64}).to_string(), "[2, 12, 512, 64]");
  EXPECT_EQ(Dims{}.to_string(), "[]");
  EXPECT_EQ((Dims{2, 3}), (Dims{2, 3}));
  EXPECT_FALSE((Dims{2, 3}) == (Dims{2, 3, 1}));
}

TEST(Dims, RefusesMoreThanEight) {
  EXPECT_EQ(code_of([] { Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}; }), ErrorCode::kInvalidArgument);
  Dims dims{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(code_of([&] { dims.push_back(9); }), ErrorCode::kInvalidArgument);
}

TEST(NumElements, IsCheckedFor64Bits) {
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({46341, 46341}), std::int64_t{46341} * 46341);
  EXPECT_EQ(num_elements({0, 7}), 0);
  EXPECT_EQ(code_of([&] { num_elements({big, big}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { num_elements({0, big, big}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { num_elements({2, -1}); }), ErrorCode::kInvalidArgument);
}

TEST(TensorView, KnowsWhetherItIsContiguous) {
  const std::vector<float> data = iota(24);
  EXPECT_TRUE(TensorView(data.data(), DType::kFloat32, {2, 3, 4}).is_contiguous());
  EXPECT_TRUE(TensorView(data.data(), DType::kFloat32, {2, 1, 4}, {4, 999, 1}).is_contiguous());
  EXPECT_TRUE(TensorView(data.data(), DType::kFloat32, {2, 0, 4}, {1, 2, 3}).is_contiguous());
  EXPECT_FALSE(TensorView(data.data(), DType::kFloat32, {3, 4}, {0, 1}).is_contiguous());
  EXPECT_FALSE(TensorView(data.data(), DType::kFloat32, {4, 3}, {1, 4}).is_contiguous());
  // Broadcast over 2^65 elements: the row-major stride of the first dimension would wrap to 0.
  constexpr std::int64_t kMany = std::int64_t{1} << 32;
  EXPECT_FALSE(
      TensorView(data.data(), DType::kFloat32, {2, kMany, kMany}, {0, kMany, 1}).is_contiguous());
}

TEST(TensorView, DescribesStridesOnlyWhereTheyMatter) {
  const std::vector<float> data = iota(24);
  EXPECT_EQ(TensorView(data.data(), DType::kFloat32, {2, 3}).describe(), "float32[2, 3]");
  EXPECT_EQ(TensorView(data.data(), DType::kFloat32, {2, 3}, {1, 2}).describe(),
            "float32[2, 3] strides [1, 2]");
}

TEST(TensorView, RefusesStridesOfAnotherRank) {
  EXPECT_EQ(code_of([] {
              TensorView(nullptr, DType::kFloat32, {2, 3}, {1});
            }),
            ErrorCode::kInvalidArgument);
}

TEST(Tensor, StartsAsAlignedZeros) {
  for (const std::int64_t rows : {0, 1, 3, 1000}) {
    const Tensor tensor(DType::kFloat16, {rows, 7});
    ASSERT_NE(tensor.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % Tensor::kAlignment, 0u);
    EXPECT_EQ(tensor.bytes(), static_cast<std::size_t>(rows) * 14);
    for (const Float16 value : tensor.as<Float16>()) EXPECT_EQ(value.bits, 0);
  }
}

TEST(Tensor, StartsAsZerosInMemoryThatWasUsed) {
  for (int repeat = 0; repeat < 4; ++repeat)
    for (const std::int64_t bytes : {1 << 16, (1 << 20) - 1, 1 << 20, 3'333'333}) {
      Tensor tensor(DType::kUInt8, {bytes});
      const auto values = tensor.as<std::uint8_t>();
      EXPECT_TRUE(std::ranges::all_of(values, [](std::uint8_t x) { return x == 0; })) << bytes;
      std::ranges::fill(values, std::uint8_t{0xff});
    }
}

TEST(Tensor, ReportsMemoryThatCannotBeHad) {
  // 2^63 bytes and 2^62: neither may wrap around to a small allocation.
  EXPECT_EQ(code_of([] { Tensor(DType::kFloat64, {std::int64_t{1} << 60}); }),
            ErrorCode::kOutOfMemory);
  EXPECT_EQ(code_of([] { Tensor(DType::kFloat64, {std::numeric_limits<std::int64_t>::max()}); }),
            ErrorCode::kOutOfMemory);
}

TEST(Tensor, CopiesItsElements) {
  Tensor first(DType::kInt32, {4});
  for (int i = 0; i < 4; ++i) first.as<std::int32_t>()[static_cast<std::size_t>(i)] = i + 1;
  Tensor second = first;
  first.as<std::int32_t>()[0] = 99;
  EXPECT_EQ(second.as<std::int32_t>()[0], 1);
  first = second;
  EXPECT_EQ(first.as<std::int32_t>()[0], 1);
  EXPECT_EQ(first.as<std::int32_t>()[3], 4);
  EXPECT_TRUE(Tensor(Tensor()).empty());
}

TEST(Tensor, RefusesTypedAccessAsAnotherType) {
  Tensor tensor(DType::kFloat16, {4});
  EXPECT_EQ(code_of([&] { tensor.as<float>(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { tensor.as<std::uint16_t>(); }), ErrorCode::kInvalidArgument);
}

TEST(Tensor, CopyOfHonoursBroadcastNegativeAndSlicedStrides) {
  const std::vector<float> data = iota(24);
  const TensorView transposed(data.data(), DType::kFloat32, {4, 3}, {1, 4});
  const Tensor t = Tensor::copy_of(transposed);
  const Tensor broadcast = Tensor::copy_of({data.data() + 5, DType::kFloat32, {2, 3}, {0, 1}});
  const Tensor reversed = Tensor::copy_of({data.data() + 9, DType::kFloat32, {4}, {-3}});
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(t.as<float>()[i * 3 + j], data[j * 4 + i]);
    EXPECT_EQ(reversed.as<float>()[i], data[9 - 3 * i]);
  }
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(broadcast.as<float>()[i], data[5 + i % 3]);
}

RC_GTEST_PROP(Tensor, CopyOfEqualsIndexingForAnyElementSize, ()) {
  const int rank = *rc::gen::inRange(0, 5);
  Dims shape, strides;
  std::int64_t reach = 0, lowest = 0;
  for (int i = 0; i < rank; ++i) {
    shape.push_back(*rc::gen::inRange<std::int64_t>(0, 5));
    strides.push_back(*rc::gen::inRange<std::int64_t>(-9, 10));
    const std::int64_t span = std::max<std::int64_t>(shape[i] - 1, 0) * strides[i];
    (span > 0 ? reach : lowest) += span;
  }
  const DType dtype =
      *rc::gen::element(DType::kInt8, DType::kUInt16, DType::kInt32, DType::kUInt64);
  const std::size_t element = dtype_bytes(dtype);
  std::vector<unsigned char> memory(static_cast<std::size_t>(reach - lowest + 1) * element);
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory[i] = static_cast<unsigned char>(i * 131 + i / 251);
  const unsigned char* origin = memory.data() - lowest * static_cast<std::int64_t>(element);

  const Tensor copy = Tensor::copy_of({origin, dtype, shape, strides});
  RC_ASSERT(copy.size() == num_elements(shape));
  const auto* got = static_cast<const unsigned char*>(copy.data());
  for (std::int64_t flat = 0; flat < copy.size(); ++flat) {
    std::int64_t rest = flat, offset = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    RC_ASSERT(std::memcmp(got + flat * static_cast<std::int64_t>(element),
                          origin + offset * static_cast<std::int64_t>(element), element) == 0);
  }
}

TEST(Tensor, ConvertsThroughStrides) {
  const std::vector<float> data = iota(6);
  const Tensor half =
      Tensor::converted({data.data(), DType::kFloat32, {3, 2}, {1, 3}}, DType::kFloat16);
  const Tensor back = Tensor::converted(half.view(), DType::kFloat64);
  const double expected[] = {0, 3, 1, 4, 2, 5};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(back.as<double>()[i], expected[i]);
}

TEST(Tensor, ConvertsDoublesWithOneRounding) {
  // Just above the midpoint of the halves 1 and 1 + 2^-10: by way of float it would be the
  // midpoint itself and round down to even.
  const double values[] = {
      1 + 0x1p-11 + 0x1p-40, -(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-11, 65520 - 1e-9, 1e300,
      std::nan("")};
  const Tensor half = Tensor::converted({values, DType::kFloat64, {6}}, DType::kFloat16);
  const std::uint16_t expected[] = {0x3c01, 0xbc01, 0x3c00, 0x7bff, 0x7c00};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(half.as<Float16>()[i].bits, expected[i]) << i;
  EXPECT_TRUE(std::isnan(static_cast<float>(half.as<Float16>()[5])));
}

TEST(Tensor, ConvertsBetweenThe16BitFloats) {
  const Float16 value(1.00390625f);  // 1 + 2^-8: a midpoint of bfloat16
  const Tensor result = Tensor::converted({&value, DType::kFloat16, {1}}, DType::kBFloat16);
  EXPECT_EQ(result.as<BFloat16>()[0].bits, 0x3f80);
}

TEST(Tensor, RefusesToConvertIntegers) {
  const Tensor ints(DType::kInt32, {2}), floats(DType::kFloat32, {2});
  EXPECT_EQ(code_of([&] { Tensor::converted(ints.view(), DType::kFloat32); }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { Tensor::converted(ints.view(), DType::kInt32); }),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { Tensor::converted(floats.view(), DType::kFloat8E4M3); }),
            ErrorCode::kUnsupported);
}

TEST(Float8, DecodesTheValuesOfThePaper) {
  // Table 1 of arXiv 2209.05433.
  EXPECT_EQ(float8_e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(float8_e4m3_to_float(0x08), 0x1p-6f);
  EXPECT_EQ(float8_e4m3_to_float(0x07), 0x1.cp-7f);
  EXPECT_EQ(float8_e4m3_to_float(0x81), -0x1p-9f);
  EXPECT_TRUE(std::isnan(float8_e4m3_to_float(0x7f)));
  EXPECT_TRUE(std::isnan(float8_e4m3_to_float(0xff)));
  EXPECT_EQ(float8_e5m2_to_float(0x7b), 57344.0f);
  EXPECT_EQ(float8_e5m2_to_float(0x01), 0x1p-16f);
  EXPECT_EQ(float8_e5m2_to_float(0xfc), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(float8_e5m2_to_float(0x7d)));
}

}  // namespace
}  // namespace stof
