#include "model/bert_normalizer.h"

#include "model/unicode.h"

namespace stof::model {

std::u32string BertNormalizer::operator()(std::u32string_view text) const {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    if (clean_text && (c == 0 || c == 0xFFFD || is_control(c))) continue;
    if (clean_text && is_whitespace(c)) {
      out.push_back(U' ');
    } else if (handle_chinese_chars && is_cjk_ideograph(c)) {
      out.append({U' ', c, U' '});
    } else {
      out.push_back(c);
    }
  }
  if (strip_accents) {
    out = decompose_canonically(out);
    std::erase_if(out, is_nonspacing_mark);
  }
  if (lowercase) {
    std::u32string lower;
    lower.reserve(out.size());
    for (const char32_t c : out) append_lowercase(c, lower);
    out = std::move(lower);
  }
  return out;
}

std::vector<std::u32string_view> split_words(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    if (end > begin) words.push_back(text.substr(begin, end - begin));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool space = is_whitespace(text[i]);
    if (!space && !is_punctuation(text[i])) continue;
    end_word(i);
    if (!space) words.push_back(text.substr(i, 1));
    begin = i + 1;
  }
  end_word(text.size());
  return words;
}

}  // namespace stof::model
