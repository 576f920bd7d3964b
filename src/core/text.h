#pragma once
// Small text helpers: figures for people, names from files shown safely, near names, UTF-8.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stof {

/// "0 B", "1023 B", "1.5 KiB", "87.3 MiB"; powers of 1024.
std::string human_bytes(std::uint64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "1.23 s", "2 min 05 s", "3 h 07 min".
std::string human_duration(double seconds);

/// "1,234,567"
std::string human_count(std::int64_t count);

/// Text from a file, in double quotes for an error message: quotes, backslashes, control characters
/// and bytes that are not UTF-8 are escaped; text longer than max_bytes ends in "...".
std::string quote_text(std::string_view text, std::size_t max_bytes = 80);

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, in bytes
/// (optimal string alignment). Cost is |a| * |b|.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The at most max_names candidates nearest to `name`, best first; only those within about a third
/// of its length. For "did you mean" hints.
std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string_view> candidates,
                                       std::size_t max_names = 3);

/// "; did you mean \"a\" or \"b\"?", or nothing when no candidate is near.
std::string near_name_hint(std::string_view name, std::span<const std::string_view> candidates);

/// One code point of UTF-8 text and how many bytes it takes.
struct CodePoint {
  char32_t value;
  std::size_t bytes;
};

/// Decodes the code point at `offset`; nothing when the bytes there are no well-formed UTF-8
/// (overlong forms, surrogates and values past U+10FFFF included) or the text ends there.
std::optional<CodePoint> decode_utf8(std::string_view text, std::size_t offset);

/// Offset of the first byte that is not part of well-formed UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return !find_invalid_utf8(text); }

/// Appends the code point's UTF-8 bytes. Throws InvalidArgument for surrogates and values past
/// U+10FFFF.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace stof
