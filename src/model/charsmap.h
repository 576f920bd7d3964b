#pragma once
// SentencePiece's table of characters and what they become (Kudo & Richardson 2018, arXiv
// 1808.06226, section 3.2), compiled into a double-array trie.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stof::model {

/// Immutable; safe from several threads.
class Charsmap {
 public:
  /// `blob` is the field precompiled_charsmap: the trie's size in bytes, the trie, the strings that
  /// its values point into. Throws Corrupt, starting with `where`, where a walk through the trie
  /// could leave it, or a string is not UTF-8.
  Charsmap(std::string_view blob, const std::string& where);

  /// The text as the `tokenizers` library normalises it: grapheme by grapheme, those of 6 bytes and
  /// more character by character, each becoming what stands for its shortest prefix in the table.
  std::string normalize(std::string_view text) const;
  /// What stands for the longest prefix of `text` that is in the table, and that prefix's bytes;
  /// none: no prefix is.
  std::optional<std::pair<std::string_view, std::size_t>> longest(std::string_view text) const;

 private:
  void check(const std::string& where) const;
  void append(std::string_view chunk, std::string& out) const;
  template <class Found>
  void walk(std::string_view text, Found found) const;
  std::optional<std::string_view> find(std::string_view chunk) const;
  std::string_view string_at(std::size_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string strings_;  ///< each ends with a zero byte
};

/// Throws Corrupt, starting with `where`, for text that is not base64.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace stof::model
