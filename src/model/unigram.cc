#include "model/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/text.h"
#include "model/subword.h"

namespace stof::model {
namespace {

/// How much less likely than every piece a character is that no piece has.
constexpr double kUnknownPenalty = 10;

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

UnigramModel::UnigramModel(std::vector<std::pair<std::string, double>> pieces, std::int64_t unknown,
                           bool byte_fallback, const std::string& where)
    : pieces_(std::move(pieces)),
      unknown_(static_cast<std::int32_t>(unknown)),
      byte_fallback_(byte_fallback) {
  const auto count = static_cast<std::int64_t>(pieces_.size());
  STOF_CHECK(unknown >= 0 && unknown < count, kCorrupt,
             "{}: unk_id: expected the id of one of the {} pieces, got {}", where, count, unknown);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto& [piece, score] = pieces_[i];
    STOF_CHECK(std::isfinite(score), kCorrupt, "{}: piece {}: expected a finite score, got {}",
               where, quote_text(piece), score);
    least = std::min(least, score);
    if (!piece.empty()) sorted_.push_back({piece, static_cast<std::int32_t>(i)});
  }
  unknown_score_ = least - kUnknownPenalty;
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [](const Entry& a, const Entry& b) { return a.piece < b.piece; });
  // Of a piece listed twice the later one counts.
  const auto last_ones =
      std::unique(sorted_.rbegin(), sorted_.rend(),
                  [](const Entry& a, const Entry& b) { return a.piece == b.piece; });
  sorted_.erase(sorted_.begin(), last_ones.base());
  for (std::size_t byte = 0; byte < 257; ++byte)
    first_[byte] = static_cast<std::size_t>(
        std::partition_point(sorted_.begin(), sorted_.end(),
                             [&](const Entry& entry) { return byte_at(entry.piece, 0) < byte; }) -
        sorted_.begin());
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = find(byte_token(static_cast<unsigned char>(byte)));
}

std::int32_t UnigramModel::find(std::string_view piece) const {
  const auto at = std::lower_bound(
      sorted_.begin(), sorted_.end(), piece,
      [](const Entry& entry, std::string_view wanted) { return entry.piece < wanted; });
  return at != sorted_.end() && at->piece == piece ? at->id : -1;
}

void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  const bool all_bytes = byte_fallback_ && std::ranges::all_of(text, [this](char c) {
                           return byte_ids_[static_cast<unsigned char>(c)] >= 0;
                         });
  if (!all_bytes) {
    ids.push_back(unknown_);
    return;
  }
  for (const char c : text) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();
  struct End {
    double score = 0;              ///< of the best pieces up to here
    std::size_t begin = kNowhere;  ///< of the last of them
    std::int32_t id = 0;
  };
  std::vector<End> ends(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    if (ends[end].begin == kNowhere || score > ends[end].score) ends[end] = {score, begin, id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t character = 1;
    while (begin + character < word.size() && (byte_at(word, begin + character) & 0xC0) == 0x80)
      ++character;
    bool has_character = false;
    // The pieces that begin with what was read so far.
    std::size_t low = first_[byte_at(word, begin)], high = first_[byte_at(word, begin) + 1U];
    for (std::size_t length = 1; low < high; ++length) {
      const Entry& entry = sorted_[low];  // of this length, if any is
      if (entry.piece.size() == length) {
        const double score = pieces_[static_cast<std::size_t>(entry.id)].second;
        offer(begin, begin + length, score + ends[begin].score, entry.id);
        has_character = has_character || length == character;
        ++low;
      }
      if (begin + length == word.size()) break;
      const unsigned char next = byte_at(word, begin + length);
      const auto first = sorted_.begin() + static_cast<std::ptrdiff_t>(low);
      const auto last = sorted_.begin() + static_cast<std::ptrdiff_t>(high);
      const auto from = std::partition_point(
          first, last, [&](const Entry& e) { return byte_at(e.piece, length) < next; });
      const auto to = std::partition_point(
          from, last, [&](const Entry& e) { return byte_at(e.piece, length) == next; });
      low = static_cast<std::size_t>(from - sorted_.begin());
      high = static_cast<std::size_t>(to - sorted_.begin());
    }
    if (!has_character)
      offer(begin, begin + character, unknown_score_ + ends[begin].score, unknown_);
    begin += character;
  }
  std::vector<End> path;  // last piece first; `score` is not used
  for (std::size_t end = word.size(); end > 0; end = ends[end].begin) path.push_back(ends[end]);
  std::size_t end = 0;
  for (std::size_t i = path.size(); i > 0;) {
    const std::size_t begin = path[--i].begin;
    const bool is_unknown = path[i].id == unknown_;
    while (is_unknown && i > 0 && path[i - 1].id == unknown_) --i;
    end = i > 0 ? path[i - 1].begin : word.size();
    if (is_unknown) {
      const std::int32_t known = find(word.substr(begin, end - begin));
      if (known < 0) {
        append_unknown(word.substr(begin, end - begin), ids);
      } else {
        ids.push_back(known);
      }
    } else {
      ids.push_back(path[i].id);
    }
  }
}

}  // namespace stof::model
