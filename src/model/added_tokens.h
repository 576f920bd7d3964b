#pragma once
// Tokens that are found in a text as it stands, before any word is split.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/unicode.h"

namespace stof::model {

/// "[MASK]", "<|im_start|>"
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool lstrip = false;      ///< swallows the whitespace before it
  bool rstrip = false;      ///< and after it
  bool normalized = false;  ///< is searched in the normalised text, itself normalised
  bool special = false;     ///< steers the model; no part of the text it writes
};

/// Added tokens of one kind, found in a text leftmost and longest first.
class AddedTokens {
 public:
  /// `token` must stay where it is. An empty content is never found.
  void add(std::u32string content, const AddedToken* token);

  /// Calls text_piece(view) and token_piece(const AddedToken&) in the order of the text.
  template <class TextPiece, class TokenPiece>
  void split(std::u32string_view text, TextPiece text_piece, TokenPiece token_piece) const;

 private:
  /// The token that starts at `at` and its length; null where none does.
  std::pair<const AddedToken*, std::size_t> match(std::u32string_view text, std::size_t at) const;

  std::unordered_map<std::u32string, const AddedToken*> by_content_;
  std::vector<std::size_t> lengths_;  ///< distinct, descending
  std::u32string first_letters_;      ///< distinct, ascending
};

template <class TextPiece, class TokenPiece>
void AddedTokens::split(std::u32string_view text, TextPiece text_piece,
                        TokenPiece token_piece) const {
  std::size_t done = 0;  // everything before is handed out
  for (std::size_t at = 0; at < text.size();) {
    const auto [token, length] = match(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + length;
    at = end;
    if (token->lstrip)
      while (begin > done && is_whitespace(text[begin - 1])) --begin;
    if (token->rstrip)
      while (end < text.size() && is_whitespace(text[end])) ++end;
    if (begin > done) text_piece(text.substr(done, begin - done));
    token_piece(*token);
    done = end;
  }
  if (done < text.size()) text_piece(text.substr(done));
}

}  // namespace stof::model
