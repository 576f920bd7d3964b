#include "stof/dtype.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "stof/error.h"

namespace stof {
namespace {

Float16 half_from_bits(std::uint32_t bits) {
  Float16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

BFloat16 bfloat_from_bits(std::uint32_t bits) {
  BFloat16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// The definition of a small IEEE format, in double: the oracle of decoding.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const double significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}

/// The compiler's own conversion.
std::uint16_t compiler_half(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

/// Nearest bfloat16 by comparing distances in double to the two neighbours: the definition of
/// "round to nearest, ties to even". For finite values that are not negative.
std::uint16_t nearest_bfloat(float value) {
  std::uint32_t low = bits_of(value) >> 16;
  const double below = decode(low, 8, 7);
  // The neighbour of the largest finite value counts as 2^128.
  const double above = low == 0x7f7f ? std::ldexp(1.0, 128) : decode(low + 1, 8, 7);
  const double to_below = value - below, to_above = above - value;
  if (to_above < to_below || (to_above == to_below && low % 2 == 1)) ++low;
  return static_cast<std::uint16_t>(low);
}

TEST(Float16, DecodesEveryPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto got = static_cast<float>(half_from_bits(bits));
    const double expected = decode(bits, 5, 10);
    if (std::isnan(expected)) {
      // The sign and payload move to the top of the wider mantissa; the quiet bit is set.
      EXPECT_EQ(bits_of(got), (bits & 0x8000) << 16 | 0x7fc00000 | (bits & 0x3ff) << 13) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(got), expected) << bits;
      EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(Float16, EncodesEveryPatternBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    EXPECT_EQ(Float16(static_cast<float>(half_from_bits(bits))).bits, is_nan ? bits | 0x200 : bits);
  }
}

TEST(Float16, RoundsMidpointsAndTheirNeighboursLikeTheCompiler) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double here = decode(bits, 5, 10);
    const double next = bits == 0x7bff ? 65536.0 : decode(bits + 1, 5, 10);
    const auto middle = static_cast<float>((here + next) / 2);  // exact: 12 significant bits
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      EXPECT_EQ(Float16(value).bits, compiler_half(value)) << value;
      EXPECT_EQ(Float16(-value).bits, compiler_half(-value)) << -value;
    }
    EXPECT_EQ(Float16(middle).bits % 2, 0) << middle;
  }
}

TEST(Float16, OverflowsToInfinityAndKeepsNaN) {
  EXPECT_EQ(Float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-std::numeric_limits<float>::max()).bits, 0xfc00);
  EXPECT_EQ(Float16(std::numeric_limits<float>::denorm_min()).bits, 0);
  // A payload in the low bits only must not turn into infinity.
  EXPECT_EQ(Float16(std::bit_cast<float>(0xff800001u)).bits, 0xfe00);
}

RC_GTEST_PROP(Float16, AgreesWithTheCompilerOnAnyBits, (std::uint32_t bits)) {
  const auto value = std::bit_cast<float>(bits);
  RC_PRE(!std::isnan(value));
  RC_ASSERT(Float16(value).bits == compiler_half(value));
}

TEST(BFloat16, DecodesEveryPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    const auto got = static_cast<float>(bfloat_from_bits(bits));
    EXPECT_EQ(bits_of(got), bits << 16 | (is_nan ? 0x00400000u : 0u));
    if (!is_nan) {
      EXPECT_EQ(static_cast<double>(got), decode(bits, 8, 7));
    }
    EXPECT_EQ(BFloat16(got).bits, is_nan ? bits | 0x40 : bits);
  }
}

TEST(BFloat16, RoundsMidpointsAndTheirNeighboursToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const std::uint32_t middle = bits << 16 | 0x8000;
    for (const std::uint32_t near : {middle - 1, middle, middle + 1}) {
      const auto value = std::bit_cast<float>(near);
      const std::uint16_t expected = nearest_bfloat(value);
      EXPECT_EQ(BFloat16(value).bits, expected) << value;
      EXPECT_EQ(BFloat16(-value).bits, expected | 0x8000) << -value;
    }
  }
}

TEST(BFloat16, KeepsNaNWhosePayloadWouldRoundAway) {
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x7f800001u)).bits, 0x7fc0);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0xffffffffu)).bits, 0xffff);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
}

RC_GTEST_PROP(BFloat16, IsTheNearestOnAnyBits, (std::uint32_t bits)) {
  const auto value = std::bit_cast<float>(bits & 0x7fffffffu);
  RC_PRE(std::isfinite(value));
  RC_ASSERT(BFloat16(value).bits == nearest_bfloat(value));
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::kInt64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_string("fp32"), DType::kFloat32);
  EXPECT_EQ(dtype_from_string("fp16"), DType::kFloat16);
  EXPECT_EQ(dtype_from_string("bf16"), DType::kBFloat16);
}

TEST(DType, HasTheBytesOfItsName) {
  EXPECT_EQ(dtype_bytes(DType::kFloat8E4M3), 1u);
  EXPECT_EQ(dtype_bytes(DType::kBool), 1u);
  EXPECT_EQ(dtype_bytes(DType::kBFloat16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kInt32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kUInt64), 8u);
}

TEST(DType, RefusesUnknownNamesListingTheKnown) {
  try {
    dtype_from_string("float12");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("float12"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

}  // namespace
}  // namespace stof
