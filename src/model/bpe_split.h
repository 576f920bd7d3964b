#pragma once
// Where byte-level BPE cuts a text into words, which are then encoded one by one.

#include <cstdint>
#include <string_view>
#include <vector>

namespace stof::model {

/// The patterns in use, as the files spell them (kRegex...). All keep a space with the word behind
/// it.
enum class BpeSplit : std::uint8_t {
  kGpt2,
  kDigitsGpt2,  ///< every digit is a word (SmolLM); GPT-2's pattern on what is between them
  kLlama3,      ///< up to three digits a word, punctuation with the newlines after it
  kQwen2,       ///< as kLlama3, but every digit is a word
};

inline constexpr std::string_view kRegexLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kRegexQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The words one behind the other; together they are the text. Linear in its length.
std::vector<std::u32string_view> split_words(BpeSplit split, std::u32string_view text);

bool is_letter(char32_t c);   ///< \p{L}
bool is_numeric(char32_t c);  ///< \p{N}

}  // namespace stof::model
