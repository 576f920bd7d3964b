#pragma once
// The text clean-up in front of a BERT vocabulary (the BertNormalizer of tokenizer.json).

#include <string>
#include <string_view>
#include <vector>

namespace stof::model {

struct BertNormalizer {
  bool clean_text = true;            ///< drop U+0000, U+FFFD and control; whitespace -> space
  bool handle_chinese_chars = true;  ///< spaces around ideographs
  bool strip_accents = true;         ///< decompose, then drop nonspacing marks
  bool lowercase = true;

  std::u32string operator()(std::u32string_view text) const;
};

/// The BertPreTokenizer: words between whitespace, each punctuation mark a word of its own. The
/// views point into `text`.
std::vector<std::u32string_view> split_words(std::u32string_view text);

}  // namespace stof::model
