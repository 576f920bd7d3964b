#include "model/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "core/check.h"
#include "core/text.h"
#include "model/unicode.h"

namespace stof::model {
namespace {

// A unit of the double array (Darts-clone's layout).
constexpr std::uint32_t kValueBit = 1U << 31;
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t label(std::uint32_t unit) { return unit & (kValueBit | 0xFF); }
std::size_t offset(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & 1U << 9) >> 6);
}
std::size_t value(std::uint32_t unit) { return unit & (kValueBit - 1); }

/// Bytes of a character of valid UTF-8 by its first.
std::size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  std::uint32_t trie_bytes = 0;
  STOF_CHECK(blob.size() >= sizeof trie_bytes, kCorrupt,
             "{}: precompiled_charsmap: expected a trie, got {} bytes", where, blob.size());
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  // Blocks of 256 units: a child, whose position differs in the last 8 bits, is inside as its
  // parent is.
  constexpr std::size_t kBlock = 256 * sizeof(std::uint32_t);
  STOF_CHECK(trie_bytes > 0 && trie_bytes % kBlock == 0 && trie_bytes <= blob.size(), kCorrupt,
             "{}: precompiled_charsmap: expected a trie of a multiple of {} bytes, at most the {} "
             "that follow, got {}",
             where, kBlock, blob.size(), trie_bytes);
  units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), blob.data(), trie_bytes);
  strings_ = blob.substr(trie_bytes);
  check(where);
}

/// Every node that a text can reach.
void Charsmap::check(const std::string& where) const {
  std::vector<bool> seen(units_.size());
  std::vector<std::size_t> open;
  const auto enter = [&](std::size_t from, std::uint32_t unit) {
    const std::size_t node = from ^ offset(unit);
    STOF_CHECK(node < units_.size(), kCorrupt,
               "{}: precompiled_charsmap: expected a trie of {} units, got a step to {}", where,
               units_.size(), node);
    if (has_leaf(unit)) {
      const std::size_t at = value(units_[node]);
      STOF_CHECK(at < strings_.size() && is_valid_utf8(string_at(at)), kCorrupt,
                 "{}: precompiled_charsmap: expected UTF-8 at an offset below {}, got offset {}",
                 where, strings_.size(), at);
    }
    if (seen[node]) return;
    seen[node] = true;
    open.push_back(node);
  };
  enter(0, units_[0]);
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t unit = units_[node ^ byte];
      if (label(unit) == byte) enter(node ^ byte, unit);
    }
  }
}

std::string_view Charsmap::string_at(std::size_t offset) const {
  const std::string_view rest = std::string_view(strings_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

/// Calls found(bytes, string) for each prefix in the table, the shortest first, until it says
/// false.
template <class Found>
void Charsmap::walk(std::string_view text, Found found) const {
  std::size_t node = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return;
    node ^= byte;
    const std::uint32_t unit = units_[node];
    if (label(unit) != byte) return;
    node ^= offset(unit);
    if (has_leaf(unit) && !found(i + 1, string_at(value(units_[node])))) return;
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view chunk) const {
  std::optional<std::string_view> shortest;
  walk(chunk, [&](std::size_t, std::string_view string) {
    shortest = string;
    return false;
  });
  return shortest;
}

std::optional<std::pair<std::string_view, std::size_t>> Charsmap::longest(
    std::string_view text) const {
  std::optional<std::pair<std::string_view, std::size_t>> last;
  walk(text, [&](std::size_t bytes, std::string_view string) {
    last = {string, bytes};
    return true;
  });
  return last;
}

void Charsmap::append(std::string_view chunk, std::string& out) const {
  constexpr std::size_t kLongGrapheme = 6;
  if (chunk.size() < kLongGrapheme) {
    if (const auto found = find(chunk)) {
      out += *found;
      return;
    }
  }
  for (std::size_t at = 0; at < chunk.size();) {
    const std::string_view character = chunk.substr(at, character_bytes(chunk[at]));
    out += find(character).value_or(character);
    at += character.size();
  }
}

std::string Charsmap::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  utf8proc_int32_t state = 0;
  std::size_t begin = 0, end = 0;
  char32_t previous = 0;
  for (const char32_t c : decode_utf8(text, "text")) {
    if (end > 0 && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                                    static_cast<utf8proc_int32_t>(c), &state)) {
      append(text.substr(begin, end - begin), out);
      begin = end;
    }
    end += character_bytes(text[end]);
    previous = c;
  }
  append(text.substr(begin), out);
  return out;
}

std::string decode_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t size = text.size();
  while (text.ends_with('=') && size - text.size() < 2) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    STOF_CHECK(digit != std::string_view::npos, kCorrupt, "{}: expected base64, got {}", where,
               quote_text(std::string(1, c)));
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits);
  }
  STOF_CHECK(size % 4 == 0 && text.size() % 4 != 1, kCorrupt,
             "{}: expected base64 in groups of 4 characters, got {}", where, size);
  return bytes;
}

}  // namespace stof::model
