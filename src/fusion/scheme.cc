#include "fusion/scheme.h"

#include <charconv>

#include "core/check.h"
#include "core/text.h"

namespace stof::fusion {
namespace {

constexpr int kMaxOperators = 4096;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::vector<bool> bits_of_hex(std::string_view text, std::size_t colon) {
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + colon, size);
  const std::string_view digits = text.substr(colon + 1);
  const bool fits = error == std::errc() && end == text.data() + colon && size >= 1 &&
                    size <= kMaxOperators &&
                    digits.size() == static_cast<std::size_t>((size + 3) / 4);
  STOF_CHECK(fits, kInvalidArgument,
             "scheme {}: expected size:digits with one digit for four operators, at most {}",
             quote_text(text), kMaxOperators);
  std::vector<bool> bits;
  for (int i = 0; i < static_cast<int>(digits.size()) * 4; ++i) {
    const int digit = hex_digit(digits[static_cast<std::size_t>(i / 4)]);
    STOF_CHECK(digit >= 0, kInvalidArgument, "scheme {}: expected digits 0-9 and a-f",
               quote_text(text));
    const bool bit = (digit >> (3 - i % 4) & 1) != 0;
    STOF_CHECK(i < size || !bit, kInvalidArgument, "scheme {}: expected no bit past operator {}",
               quote_text(text), size - 1);
    if (i < size) bits.push_back(bit);
  }
  return bits;
}

}  // namespace

Scheme::Scheme(std::vector<bool> bits) : bits_(std::move(bits)) {
  if (!bits_.empty() && bits_[0]) bits_.flip();
}

Scheme Scheme::separate(int num_operators) {
  return from_sizes(std::vector<int>(static_cast<std::size_t>(std::max(num_operators, 0)), 1));
}

Scheme Scheme::from_sizes(const std::vector<int>& sizes) {
  std::vector<bool> bits;
  bool bit = false;
  for (const int size : sizes) {
    STOF_CHECK(size >= 1, kInvalidArgument, "scheme: expected segments of at least 1, got {}",
               size);
    bits.insert(bits.end(), static_cast<std::size_t>(size), bit);
    bit = !bit;
  }
  return Scheme(std::move(bits));
}

Scheme Scheme::from_text(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) return Scheme(bits_of_hex(text, colon));
  std::vector<bool> bits;
  for (const char c : text) {
    STOF_CHECK(c == '0' || c == '1', kInvalidArgument,
               "scheme {}: expected one 0 or 1 per operator, or size:hexadecimal digits",
               quote_text(text));
    bits.push_back(c == '1');
  }
  STOF_CHECK(!bits.empty() && bits.size() <= kMaxOperators, kInvalidArgument,
             "scheme: expected 1 to {} operators, got {}", kMaxOperators, bits.size());
  return Scheme(std::move(bits));
}

bool Scheme::boundary(int i) const {
  STOF_CHECK(i >= 1 && i < size(), kInvalidArgument,
             "scheme of {} operators: expected a boundary from 1 to {}, got {}", size(), size() - 1,
             i);
  return bits_[static_cast<std::size_t>(i)] != bits_[static_cast<std::size_t>(i) - 1];
}

std::vector<std::pair<int, int>> Scheme::segments() const {
  std::vector<std::pair<int, int>> segments;
  for (int i = 0; i < size(); ++i) {
    if (i == 0 || boundary(i))
      segments.emplace_back(i, i);
    else
      segments.back().second = i;
  }
  return segments;
}

Scheme Scheme::with_boundary(int i, bool boundary) const {
  if (this->boundary(i) == boundary) return *this;
  std::vector<bool> bits = bits_;
  for (std::size_t k = static_cast<std::size_t>(i); k < bits.size(); ++k) bits[k] = !bits[k];
  return Scheme(std::move(bits));
}

std::string Scheme::text() const {
  std::string text;
  for (const bool bit : bits_) text += bit ? '1' : '0';
  return text;
}

std::string Scheme::hex() const {
  std::string text = fmt::format("{}:", size());
  for (std::size_t i = 0; i < bits_.size(); i += 4) {
    int digit = 0;
    for (std::size_t k = i; k < i + 4; ++k) digit = digit * 2 + (k < bits_.size() && bits_[k]);
    text += fmt::format("{:x}", digit);
  }
  return text;
}

}  // namespace stof::fusion
