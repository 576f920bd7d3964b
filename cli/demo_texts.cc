#include "demo_texts.h"

#include <unordered_map>

namespace stof::cli {

const std::vector<std::string>& demo_sentences() {
  static const std::vector<std::string> sentences = {
      "The cat is asleep on the windowsill.",
      "A kitten naps by the window.",
      "How do I sort a list of numbers in Python?",
      "Put the elements of an array into ascending order.",
      "The central bank raised interest rates again.",
      "Borrowing money became more expensive this month.",
      "Water boils at a lower temperature on high mountains.",
      "At altitude, pasta takes longer to cook.",
  };
  return sentences;
}

std::vector<std::string> split_document(const TextEncoder& encoder, const std::string& text,
                                        std::int64_t max_tokens) {
  const auto count = [&encoder](const std::string& word) {
    return static_cast<std::int64_t>(encoder.tokenize(word).ids.size());
  };
  // WordPiece never looks across white space, so the words' own tokens add up.
  const std::int64_t num_special = count("");
  std::unordered_map<std::string, std::int64_t> known;
  std::vector<std::string> pieces;
  std::string piece;
  std::int64_t tokens = num_special;
  for (std::size_t begin = 0; begin < text.size();) {
    begin = text.find_first_not_of(" \t\r\n\f", begin);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t\r\n\f", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end;
    const auto [entry, is_new] = known.try_emplace(word, 0);
    if (is_new) entry->second = count(word) - num_special;
    if (!piece.empty() && tokens + entry->second > max_tokens) {
      pieces.push_back(std::move(piece));
      piece.clear();
      tokens = num_special;
    }
    piece += piece.empty() ? word : " " + word;
    tokens += entry->second;
  }
  if (!piece.empty()) pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace stof::cli
