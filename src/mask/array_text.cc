#include "mask/array_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/check.h"
#include "core/text.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// rows * bytes_per_row * 2 digits, or InvalidArgument naming the shape.
void check_digits(const IntList& shape, std::size_t digits) {
  std::int64_t expected = 2;
  bool overflow = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    STOF_CHECK(shape[i] >= 1, kInvalidArgument,
               "dense: shape: expected extents of at least 1, got [{}]", fmt::join(shape, ", "));
    const std::int64_t factor = i + 1 == shape.size() ? (shape[i] - 1) / 8 + 1 : shape[i];
    overflow |= __builtin_mul_overflow(expected, factor, &expected);
  }
  STOF_CHECK(!overflow, kInvalidArgument, "dense: shape: [{}] is larger than any array",
             fmt::join(shape, ", "));
  STOF_CHECK(static_cast<std::size_t>(expected) == digits, kInvalidArgument,
             "dense: bits: expected {} hexadecimal digits for shape [{}] (each row padded to whole "
             "bytes), got {}",
             expected, fmt::join(shape, ", "), digits);
}

}  // namespace

std::string hex_of(const BitArray& array) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::int64_t rows = array.shape[0] * array.shape[1] * array.shape[2];
  const std::int64_t row_bytes = (array.shape[3] + 7) / 8;
  std::string out;
  out.reserve(static_cast<std::size_t>(2 * rows * row_bytes));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint64_t* words = array.words.data() + row * array.words_per_row();
    for (std::int64_t j = 0; j < row_bytes; ++j) {
      const auto byte = static_cast<unsigned>(words[j / 8] >> (8 * (j % 8))) & 0xff;
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

Mask dense_from_hex(const IntList& shape, std::string_view bits) {
  STOF_CHECK(shape.size() == 2 || shape.size() == 4, kInvalidArgument,
             "dense: shape: expected [Sq, Sk] or [B, H, Sq, Sk], got [{}]", fmt::join(shape, ", "));
  check_digits(shape, bits.size());
  auto array = std::make_shared<BitArray>();
  std::copy(shape.begin(), shape.end(), array->shape + 4 - shape.size());
  const std::int64_t seq_kv = shape.back();
  const std::size_t row_bytes = static_cast<std::size_t>((seq_kv + 7) / 8);
  const std::size_t rows = bits.size() / 2 / row_bytes;
  const auto row_words = static_cast<std::size_t>(array->words_per_row());
  array->words.resize(rows * row_words);
  for (std::size_t at = 0; at < rows * row_bytes; ++at) {
    const int high = digit_value(bits[2 * at]);
    const int low = digit_value(bits[2 * at + 1]);
    STOF_CHECK(high >= 0 && low >= 0, kInvalidArgument,
               "dense: bits: expected hexadecimal digits, got {} at digit {}",
               quote_text(bits.substr(2 * at, 2)), 2 * at);
    const std::size_t row = at / row_bytes;
    const std::size_t j = at % row_bytes;
    const std::uint64_t byte =
        static_cast<std::uint64_t>(high) * 16 + static_cast<std::uint64_t>(low);
    const std::int64_t keys = std::min<std::int64_t>(8, seq_kv - 8 * static_cast<std::int64_t>(j));
    STOF_CHECK(byte >> keys == 0, kInvalidArgument,
               "dense: bits: row {} sets a bit past its {} keys", row, seq_kv);
    array->words[row * row_words + j / 8] |= byte << (8 * (j % 8));
  }
  return dense_of_bits(std::move(array));
}

}  // namespace stof::mask
