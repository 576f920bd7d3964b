#pragma once
// UTF-8, and the Unicode questions a BERT tokenizer asks.

#include <string>
#include <string_view>

namespace stof::model {

/// Throws InvalidArgument "<what>: invalid UTF-8 at byte 17 ..." on the first ill-formed sequence
/// (stray or missing continuation bytes, overlong forms, surrogates, past U+10FFFF).
std::u32string decode_utf8(std::string_view text, std::string_view what);

std::string encode_utf8(std::u32string_view text);

bool is_whitespace(char32_t c);       ///< the Unicode property White_Space
bool is_control(char32_t c);          ///< categories Cc, Cf and Co less tab, newline and return
bool is_punctuation(char32_t c);      ///< ASCII symbols and the P categories
bool is_nonspacing_mark(char32_t c);  ///< category Mn
/// The ideographs BERT puts spaces around: its own list of blocks, with its gap at U+2B820.
bool is_cjk_ideograph(char32_t c);

void append_lowercase(char32_t c, std::u32string& out);

/// Canonical decomposition (NFD) in O(n log n), however many marks one letter carries.
std::u32string decompose_canonically(std::u32string_view text);

}  // namespace stof::model
