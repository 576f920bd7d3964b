#include "tensor/strided.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"

namespace stof {
namespace {

/// Calls row(pointer to the first element of an innermost row) for each row, in row-major order.
template <class Row>
void for_each_row(const TensorView& source, std::size_t element_bytes, Row row) {
  const int outer = source.shape.rank() - 1;
  Dims index = source.shape;
  for (int i = 0; i < index.rank(); ++i) index[i] = 0;
  std::int64_t offset = 0;  // in elements
  const auto* base = static_cast<const std::byte*>(source.data);
  for (;;) {
    row(base + offset * static_cast<std::int64_t>(element_bytes));
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      offset += source.strides[axis];
      if (++index[axis] < source.shape[axis]) break;
      offset -= index[axis] * source.strides[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

/// Innermost extent and stride; a scalar is a row of one.
struct RowLayout {
  std::int64_t extent = 1, stride = 1;
};

RowLayout row_layout(const TensorView& source) {
  const int rank = source.shape.rank();
  if (rank == 0) return {};
  return {source.shape[rank - 1], source.strides[rank - 1]};
}

/// Rounds towards zero to float and sets the last bit if that was inexact ("round to odd"), so that
/// a second rounding to a shorter format gives the same as rounding once (Boldo and Melquiond
/// 2008).
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

struct E4M3 {
  std::uint8_t bits;
};
struct E5M2 {
  std::uint8_t bits;
};

template <class From, class To>
To convert(From value) {
  if constexpr (std::is_same_v<From, E4M3>) {
    return convert<float, To>(float8_e4m3_to_float(value.bits));
  } else if constexpr (std::is_same_v<From, E5M2>) {
    return convert<float, To>(float8_e5m2_to_float(value.bits));
  } else if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    return To(round_to_odd(value));
  } else if constexpr (std::is_same_v<From, BFloat16> && std::is_same_v<To, float>) {
    // As BFloat16 does, inline for rows of logits.
    std::uint32_t bits = std::uint32_t{value.bits} << 16;
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits |= 0x00400000u;
    return std::bit_cast<float>(bits);
  } else if constexpr (std::is_same_v<To, double> && sizeof(From) == 2) {
    return static_cast<double>(static_cast<float>(value));
  } else if constexpr (sizeof(From) == 2 && sizeof(To) == 2) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void convert_rows(const TensorView& source, To* out) {
  const RowLayout layout = row_layout(source);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(From));
  for_each_row(source, sizeof(From), [&](const std::byte* row) {
    const auto convert_row = [&](std::int64_t step) {
      for (std::int64_t i = 0; i < layout.extent; ++i) {
        From value;  // by memcpy: views into files need not be aligned
        std::memcpy(&value, row + i * step, sizeof(From));
        out[i] = convert<From, To>(value);
      }
    };
    if (layout.stride == 1)
      convert_row(kBytes);  // a constant, for the compiler
    else
      convert_row(layout.stride * kBytes);
    out += layout.extent;
  });
}

template <class To>
void convert_to(const TensorView& source, void* destination) {
  auto* out = static_cast<To*>(destination);
  switch (source.dtype) {
    case DType::kFloat32:
      return convert_rows<float>(source, out);
    case DType::kFloat16:
      return convert_rows<Float16>(source, out);
    case DType::kBFloat16:
      return convert_rows<BFloat16>(source, out);
    case DType::kFloat64:
      return convert_rows<double>(source, out);
    case DType::kFloat8E4M3:
      return convert_rows<E4M3>(source, out);
    case DType::kFloat8E5M2:
      return convert_rows<E5M2>(source, out);
    default:
      throw_error(ErrorCode::kInternal, "internal error: unchecked conversion from {}",
                  to_string(source.dtype));
  }
}

template <std::size_t kBytes>
void copy_rows(const TensorView& source, std::byte* out) {
  const RowLayout layout = row_layout(source);
  for_each_row(source, kBytes, [&](const std::byte* row) {
    if (layout.stride == 1) {
      std::memcpy(out, row, static_cast<std::size_t>(layout.extent) * kBytes);
      out += static_cast<std::size_t>(layout.extent) * kBytes;
      return;
    }
    for (std::int64_t i = 0; i < layout.extent; ++i, out += kBytes)
      std::memcpy(out, row + i * layout.stride * static_cast<std::int64_t>(kBytes), kBytes);
  });
}

}  // namespace

void copy_strided(const TensorView& source, void* destination) {
  const std::int64_t size = num_elements(source.shape);
  if (size == 0) return;
  const std::size_t element = dtype_bytes(source.dtype);
  auto* out = static_cast<std::byte*>(destination);
  if (source.is_contiguous()) {
    std::memcpy(out, source.data, static_cast<std::size_t>(size) * element);
    return;
  }
  switch (element) {
    case 1:
      return copy_rows<1>(source, out);
    case 2:
      return copy_rows<2>(source, out);
    case 4:
      return copy_rows<4>(source, out);
    default:
      return copy_rows<8>(source, out);
  }
}

void check_convertible(DType from, DType to) {
  const auto computes = [](DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
           dtype == DType::kFloat64;
  };
  const bool readable = computes(from) || from == DType::kFloat8E4M3 || from == DType::kFloat8E5M2;
  STOF_CHECK(readable && computes(to), kUnsupported,
             "conversion from {} to {}: expected a float type to float32, float16, bfloat16 or "
             "float64",
             to_string(from), to_string(to));
}

void convert_strided(const TensorView& source, DType dtype, void* destination) {
  check_convertible(source.dtype, dtype);
  if (num_elements(source.shape) == 0) return;
  switch (dtype) {
    case DType::kFloat32:
      return convert_to<float>(source, destination);
    case DType::kFloat16:
      return convert_to<Float16>(source, destination);
    case DType::kBFloat16:
      return convert_to<BFloat16>(source, destination);
    default:
      return convert_to<double>(source, destination);
  }
}

float float8_e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

float float8_e5m2_to_float(std::uint8_t bits) {
  Float16 half;
  half.bits = static_cast<std::uint16_t>(bits << 8);
  return static_cast<float>(half);
}

}  // namespace stof
