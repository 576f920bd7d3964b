#include "model/bpe_split.h"

#include <algorithm>
#include <array>

#include "model/unicode.h"
#include "model/unicode_tables.h"

namespace stof::model {
namespace {

bool in_table(const CodePointRange* ranges, std::size_t size, char32_t c) {
  const CodePointRange* end = ranges + size;
  const CodePointRange* range = std::lower_bound(
      ranges, end, c, [](const CodePointRange& r, char32_t x) { return r.last < x; });
  return range != end && range->first <= c;
}

/// Every digit is a word of its own for kDigitsGpt2, also those of a newer Unicode than \p{N}
/// knows.
bool is_digit_word(char32_t c) {
  return is_numeric(c) || in_table(kNewNumbers, kNewNumbersSize, c);
}

bool is_newline(char32_t c) { return c == U'\r' || c == U'\n'; }
bool is_other(char32_t c) { return !is_whitespace(c) && !is_letter(c) && !is_numeric(c); }

/// End of the run from `i` on for which `property` holds.
template <class Property>
std::size_t run_end(std::u32string_view text, std::size_t i, Property property) {
  while (i < text.size() && property(text[i])) ++i;
  return i;
}

/// Length of "'s", "'ll" ... at `i`, or 0. Without regard to case, the long s folds to s as well.
std::size_t contraction(std::u32string_view text, std::size_t i, bool any_case) {
  static constexpr std::array<std::u32string_view, 7> kEndings = {U"s", U"t",  U"re", U"ve",
                                                                  U"m", U"ll", U"d"};
  if (text[i] != U'\'') return 0;
  const auto folded = [any_case](char32_t c) -> char32_t {
    if (!any_case) return c;
    if (c == U'\u017F') return U's';
    return c >= U'A' && c <= U'Z' ? c + 32 : c;
  };
  const std::u32string_view rest = text.substr(i + 1);
  for (const std::u32string_view ending : kEndings) {
    if (rest.size() < ending.size()) continue;
    if (std::equal(ending.begin(), ending.end(), rest.begin(),
                   [&](char32_t a, char32_t b) { return a == folded(b); }))
      return 1 + ending.size();
  }
  return 0;
}

/// End of whitespace from `i` to `run`: the last one is left for the word that follows.
std::size_t whitespace_end(std::u32string_view text, std::size_t i, std::size_t run) {
  return run < text.size() && run > i + 1 ? run - 1 : run;
}

std::size_t gpt2_end(std::u32string_view text, std::size_t i) {
  if (const std::size_t length = contraction(text, i, false)) return i + length;
  const std::size_t j = text[i] == U' ' && i + 1 < text.size() ? i + 1 : i;
  if (is_letter(text[j])) return run_end(text, j, is_letter);
  if (is_numeric(text[j])) return run_end(text, j, is_numeric);
  if (is_other(text[j])) return run_end(text, j, is_other);
  return whitespace_end(text, i, run_end(text, i, is_whitespace));
}

std::size_t llama3_end(std::u32string_view text, std::size_t i, std::size_t max_digits) {
  if (const std::size_t length = contraction(text, i, true)) return i + length;
  if (is_letter(text[i])) return run_end(text, i, is_letter);
  if (is_numeric(text[i])) {
    const std::size_t limit = std::min(text.size(), i + max_digits);
    return run_end(text.substr(0, limit), i, is_numeric);
  }
  const bool more = i + 1 < text.size();
  if (more && !is_newline(text[i]) && is_letter(text[i + 1]))
    return run_end(text, i + 1, is_letter);
  const std::size_t j = text[i] == U' ' && more ? i + 1 : i;
  if (is_other(text[j])) return run_end(text, run_end(text, j, is_other), is_newline);
  const std::size_t run = run_end(text, i, is_whitespace);
  for (std::size_t end = run; end > i; --end)
    if (is_newline(text[end - 1])) return end;
  return whitespace_end(text, i, run);
}

}  // namespace

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
  return in_table(kLetters, kLettersSize, c);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= U'0' && c <= U'9';
  return in_table(kNumbers, kNumbersSize, c);
}

std::vector<std::u32string_view> split_words(BpeSplit split, std::u32string_view text) {
  std::vector<std::u32string_view> words;
  const auto take = [&words](std::u32string_view piece, auto word_end) {
    for (std::size_t i = 0; i < piece.size();) {
      const std::size_t end = word_end(piece, i);
      words.push_back(piece.substr(i, end - i));
      i = end;
    }
  };
  if (split == BpeSplit::kDigitsGpt2) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::size_t digit = run_end(text, i, [](char32_t c) { return !is_digit_word(c); });
      take(text.substr(i, digit - i), gpt2_end);
      if (digit < text.size()) words.push_back(text.substr(digit, 1));
      i = digit;
    }
  } else if (split == BpeSplit::kGpt2) {
    take(text, gpt2_end);
  } else {
    const std::size_t max_digits = split == BpeSplit::kLlama3 ? 3 : 1;
    take(text, [&](std::u32string_view piece, std::size_t i) {
      return llama3_end(piece, i, max_digits);
    });
  }
  return words;
}

}  // namespace stof::model
