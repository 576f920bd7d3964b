#include "model/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/text.h"
#include "model/subword.h"

namespace stof::model {
namespace {

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

/// Where a piece of a path ends.
template <class Score>
struct PathEnd {
  Score score = 0;               ///< of the best pieces up to here
  std::size_t begin = kNowhere;  ///< of the last of them
  std::int32_t id = 0;
};

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

UnigramSpec make_unigram_spec(std::vector<std::pair<std::string, double>> pieces,
                              std::int64_t unknown, bool byte_fallback, const std::string& where) {
  const auto count = static_cast<std::int64_t>(pieces.size());
  STOF_CHECK(unknown >= 0 && unknown < count, kCorrupt,
             "{}: unk_id: expected the id of one of the {} pieces, got {}", where, count, unknown);
  UnigramSpec spec;
  spec.byte_ids.fill(-1);
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& [piece, score] = pieces[i];
    STOF_CHECK(std::isfinite(score), kCorrupt, "{}: piece {}: expected a finite score, got {}",
               where, quote_text(piece), score);
    least = std::min(least, score);
    const int byte = byte_of_token(piece);
    if (byte_fallback && byte >= 0 && piece == byte_token(static_cast<unsigned char>(byte)))
      spec.byte_ids[static_cast<std::size_t>(byte)] = static_cast<std::int32_t>(i);
  }
  spec.pieces = std::move(pieces);
  spec.unknown = unknown;
  spec.unknown_score = least - kUnknownPenalty;
  spec.unknown_by_spelling = true;
  return spec;
}

UnigramModel::UnigramModel(UnigramSpec spec) : spec_(std::move(spec)) {
  for (std::size_t i = 0; i < spec_.pieces.size(); ++i)
    if (!spec_.pieces[i].first.empty())
      sorted_.push_back({spec_.pieces[i].first, static_cast<std::int32_t>(i)});
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
}

std::int32_t UnigramModel::find(std::string_view piece) const {
  const auto at = std::lower_bound(
      sorted_.begin(), sorted_.end(), piece,
      [](const Entry& entry, std::string_view wanted) { return entry.piece < wanted; });
  return at != sorted_.end() && at->piece == piece ? at->id : -1;
}

void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto id_of = [this](char c) { return spec_.byte_ids[static_cast<unsigned char>(c)]; };
  if (std::ranges::any_of(text, [&](char c) { return id_of(c) < 0; })) {
    ids.push_back(static_cast<std::int32_t>(spec_.unknown));
    return;
  }
  for (const char c : text) ids.push_back(id_of(c));
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (spec_.single_precision) {
    search<float>(word, ids);
  } else {
    search<double>(word, ids);
  }
}

template <class Score>
void UnigramModel::search(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto unknown = static_cast<std::int32_t>(spec_.unknown);
  using End = PathEnd<Score>;
  std::vector<End> ends(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, Score score, std::int32_t id) {
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
        const auto score =
            static_cast<Score>(spec_.pieces[static_cast<std::size_t>(entry.id)].second);
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
      offer(begin, begin + character, static_cast<Score>(spec_.unknown_score) + ends[begin].score,
            unknown);
    begin += character;
  }
  std::vector<End> path;  // last piece first; `score` is not used
  for (std::size_t end = word.size(); end > 0; end = ends[end].begin) path.push_back(ends[end]);
  std::size_t end = 0;
  for (std::size_t i = path.size(); i > 0;) {
    const std::size_t begin = path[--i].begin;
    const bool is_unknown = path[i].id == unknown;
    while (is_unknown && i > 0 && path[i - 1].id == unknown) --i;
    end = i > 0 ? path[i - 1].begin : word.size();
    if (is_unknown) {
      const std::int32_t known =
          spec_.unknown_by_spelling ? find(word.substr(begin, end - begin)) : -1;
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
