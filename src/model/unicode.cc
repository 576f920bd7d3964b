#include "model/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/check.h"
#include "core/text.h"
#include "model/unicode_tables.h"

namespace stof::model {
namespace {

/// The range that holds c, or null.
template <class Range>
const Range* find_range(const Range* ranges, std::size_t size, char32_t c) {
  const Range* end = ranges + size;
  const Range* range =
      std::lower_bound(ranges, end, c, [](const Range& r, char32_t x) { return r.last < x; });
  return range != end && range->first <= c ? range : nullptr;
}

std::uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const CombiningRange* range = find_range(kCombining, kCombiningSize, c);
  return range != nullptr ? range->combining_class : 0;
}

/// Letters whose decomposition was added to Unicode after the normaliser of the tokenizers library
/// was made (U+11938 in 13.0, the rest in 16.0); some versions of utf8proc know them.
bool is_newer_composite(char32_t c) {
  static constexpr std::array<char32_t, 21> kNewer = {
      0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C5,
      0x113C7, 0x113C8, 0x11938, 0x16121, 0x16122, 0x16123, 0x16124,
      0x16125, 0x16126, 0x16127, 0x16128, 0x16D68, 0x16D69, 0x16D6A};
  return std::binary_search(kNewer.begin(), kNewer.end(), c);
}

void append_decomposition(char32_t c, std::u32string& out) {
  // No canonical decomposition is longer than 4 code points (Unicode's stability policy allows 18).
  std::array<utf8proc_int32_t, 18> parts;
  int boundary = 0;
  const utf8proc_ssize_t n =
      c < 0xC0 || is_newer_composite(c)
          ? 0
          : utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                    UTF8PROC_DECOMPOSE, &boundary);
  if (n <= 0) {
    out.push_back(c);
    return;
  }
  STOF_ASSERT(static_cast<std::size_t>(n) <= parts.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
    out.push_back(static_cast<char32_t>(parts[i]));
}

}  // namespace

std::u32string decode_utf8(std::string_view text, std::string_view what) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto point = stof::decode_utf8(text, at);
    STOF_CHECK(point.has_value(), kInvalidArgument,
               "{}: expected UTF-8, got the invalid byte 0x{:02x} at byte {}; convert the text to "
               "UTF-8 first",
               what, static_cast<unsigned char>(text[at]), at);
    out.push_back(point->value);
    at += point->bytes;
  }
  return out;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

bool is_whitespace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_control(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return false;
  return find_range(kControl, kControlSize, c) != nullptr;
}

bool is_punctuation(char32_t c) { return find_range(kPunctuation, kPunctuationSize, c) != nullptr; }

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && find_range(kNonspacing, kNonspacingSize, c) != nullptr;
}

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lowercase(char32_t c, std::u32string& out) {
  if (c == 0x130) {  // capital I with dot above: the one letter with a two-letter lower case
    out += U"i\u0307";
    return;
  }
  const LowerRange* range = find_range(kLower, kLowerSize, c);
  if (range != nullptr && (c - range->first) % range->step == 0)
    c = static_cast<char32_t>(static_cast<std::int32_t>(c) + range->delta);
  out.push_back(c);
}

std::u32string decompose_canonically(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_decomposition(c, out);
  // Canonical ordering: each run of marks, stably by combining class.
  for (auto run = out.begin(); run != out.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, out.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(
        run, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
  return out;
}

}  // namespace stof::model
