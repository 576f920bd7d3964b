#include "core/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"

namespace stof {
namespace {

/// Three significant digits, as "1.23", "12.3", "123".
std::string three_digits(double value) {
  // Compared after rounding: 9.996 is "10.0".
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

/// Cost of edit_distance is the product of the lengths; longer names are no typing errors.
constexpr std::size_t kMaxHintLength = 256;

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "unknown";
  if (seconds < 999.5e-9) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  if (seconds > 1e15) return "unknown";  // past what 64-bit arithmetic on seconds needs to serve
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string human_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string quote_text(std::string_view text, std::size_t max_bytes) {
  std::string result = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const std::optional<CodePoint> point = decode_utf8(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control =
        !point || point->value < 0x20 || (point->value >= 0x7f && point->value < 0xa0);
    if (control) {
      result += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    if (byte == '"' || byte == '\\') result += '\\';
    result += text.substr(at, point->bytes);
    at += point->bytes;
  }
  result += at < text.size() ? "...\"" : "\"";
  return result;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the dynamic program: [i][j] is the distance of the first i and j bytes.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitute});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string_view> candidates,
                                       std::size_t max_names) {
  if (name.size() > kMaxHintLength) return {};
  const std::size_t limit = std::max<std::size_t>(2, name.size() / 3);
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const std::string_view candidate : candidates) {
    const std::size_t longer = std::max(candidate.size(), name.size());
    if (longer - std::min(candidate.size(), name.size()) > limit) continue;
    const std::size_t distance = edit_distance(name, candidate);
    // A candidate with hardly a byte in common is no hint, however short both are.
    if (distance <= limit && distance < longer) near.emplace_back(distance, candidate);
  }
  const std::size_t count = std::min(max_names, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.emplace_back(near[i].second);
  return names;
}

std::string near_name_hint(std::string_view name, std::span<const std::string_view> candidates) {
  const std::vector<std::string> names = nearest_names(name, candidates);
  std::string hint;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) hint += i + 1 == names.size() ? " or " : ", ";
    hint += quote_text(names[i]);
  }
  return hint.empty() ? hint : fmt::format("; did you mean {}?", hint);
}

std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return std::nullopt;
  const std::size_t available = std::min<std::size_t>(text.size() - offset, 4);
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t used =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
                       static_cast<utf8proc_ssize_t>(available), &value);
  if (used <= 0) return std::nullopt;
  return CodePoint{static_cast<char32_t>(value), static_cast<std::size_t>(used)};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<CodePoint> point = decode_utf8(text, at);
    if (!point) return at;
    at += point->bytes;
  }
  return std::nullopt;
}

void append_utf8(std::string& text, char32_t code_point) {
  const bool valid = code_point <= 0x10ffff && (code_point < 0xd800 || code_point > 0xdfff);
  STOF_CHECK(valid, kInvalidArgument, "U+{:04X} is not a Unicode scalar value",
             static_cast<std::uint32_t>(code_point));
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t used =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(used));
}

}  // namespace stof
