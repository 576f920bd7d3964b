#include <algorithm>
#include <limits>

#include "model/sentencepiece.h"

namespace stof::model {
namespace {

using Type = SentencePieceSpec::Type;

UnigramSpec unigram_spec(const SentencePieceSpec& spec) {
  float least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::lowest();
  for (const SentencePieceSpec::Piece& piece : spec.pieces)
    if (piece.type == Type::kNormal) {
      least = std::min(least, piece.score);
      most = std::max(most, piece.score);
    }
  UnigramSpec unigram;
  unigram.byte_ids.fill(-1);
  unigram.single_precision = true;
  unigram.unknown_score = least - kUnknownPenalty;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePieceSpec::Piece& piece = spec.pieces[i];
    const bool found = piece.type == Type::kNormal || piece.type == Type::kUserDefined;
    // What the user has defined is taken before all that lies within it.
    constexpr double kBelowMost = 0.1;
    const double score = piece.type == Type::kUserDefined
                             ? static_cast<double>(piece.text.size()) * most - kBelowMost
                             : piece.score;
    unigram.pieces.emplace_back(found ? piece.text : "", score);
    if (piece.type == Type::kUnknown) unigram.unknown = static_cast<std::int64_t>(i);
    if (piece.type == Type::kByte && spec.byte_fallback)
      unigram.byte_ids[static_cast<std::size_t>(byte_of_token(piece.text))] =
          static_cast<std::int32_t>(i);
  }
  return unigram;
}

}  // namespace

UnigramSearch::UnigramSearch(const SentencePieceSpec& spec)
    : charsmap_(spec.charsmap), removes_blanks_(spec.removes_blanks), model_(unigram_spec(spec)) {
  for (const SentencePieceSpec::Piece& piece : spec.pieces)
    if (piece.type == Type::kUserDefined) user_defined_.push_back(piece.text);
  std::ranges::stable_sort(user_defined_, std::greater<>(), &std::string::size);
}

std::pair<std::string_view, std::size_t> UnigramSearch::normalized_prefix(
    std::string_view text) const {
  for (const std::string& piece : user_defined_)
    if (text.starts_with(piece)) return {text.substr(0, piece.size()), piece.size()};
  if (charsmap_ != nullptr)
    if (const auto found = charsmap_->longest(text)) return *found;
  std::size_t character = 1;
  while (character < text.size() && (static_cast<unsigned char>(text[character]) & 0xC0) == 0x80)
    ++character;
  return {text.substr(0, character), character};
}

std::string UnigramSearch::normalized(std::string_view text, bool adds_blank) const {
  std::string out;
  bool after_blank = removes_blanks_;
  bool started = false;  // the blank in front is not for a text that is blank
  while (!text.empty()) {
    auto [piece, bytes] = normalized_prefix(text);
    text.remove_prefix(bytes);
    if (!started && removes_blanks_ && piece == " ") continue;
    if (!started && adds_blank) out += kBlankMark;
    started = true;
    while (after_blank && piece.starts_with(' ')) piece.remove_prefix(1);
    for (const char c : piece) {
      if (c == ' ') {
        out += kBlankMark;
      } else {
        out += c;
      }
    }
    if (!piece.empty()) after_blank = removes_blanks_ && piece.ends_with(' ');
  }
  while (removes_blanks_ && out.ends_with(kBlankMark)) out.resize(out.size() - kBlankMark.size());
  return out;
}

void UnigramSearch::encode(std::string_view text, bool adds_blank,
                           std::vector<std::int32_t>& ids) const {
  const std::string clean = normalized(text, adds_blank);
  if (!clean.empty()) model_.encode(clean, ids);
}

}  // namespace stof::model
