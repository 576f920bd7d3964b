#pragma once
// The unigram model of subwords (Kudo 2018, arXiv 1804.10959, section 3.2).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stof::model {

struct UnigramSpec {
  /// With their logarithmic probabilities, in the order of ids; an empty piece is never found.
  std::vector<std::pair<std::string, double>> pieces;
  std::int64_t unknown = -1;  ///< the id of what is in no piece
  double unknown_score = 0;   ///< of a character that is in no piece
  /// Of each byte, which unknown characters become; -1: none, and they become `unknown`.
  std::array<std::int32_t, 256> byte_ids{};
  /// Unknown characters that are a piece together are that piece.
  bool unknown_by_spelling = false;
  /// Scores are added in float: what is equally likely in double may not be, and the reverse.
  bool single_precision = false;
};

/// How much less likely than every piece a character is that no piece has.
inline constexpr double kUnknownPenalty = 10;

/// As a tokenizer.json has it. Throws Corrupt, starting with `where`, for no pieces, an unknown
/// that is none, or a score that is not finite.
UnigramSpec make_unigram_spec(std::vector<std::pair<std::string, double>> pieces,
                              std::int64_t unknown, bool byte_fallback, const std::string& where);

/// Immutable; safe from several threads.
class UnigramModel {
 public:
  explicit UnigramModel(UnigramSpec spec);
  // Entries are views of the pieces' text, which moves with them and a copy would leave behind.
  UnigramModel(const UnigramModel&) = delete;
  UnigramModel& operator=(const UnigramModel&) = delete;
  UnigramModel(UnigramModel&&) = default;
  UnigramModel& operator=(UnigramModel&&) = default;
  ~UnigramModel() = default;

  /// Appends the ids of the likeliest sequence of pieces for a word, of equally likely ones the
  /// first found, as `tokenizers` (in double) and `sentencepiece` 0.2 (in single precision) find
  /// it. Unknown characters in a row are one unknown, or their bytes' tokens where all are in the
  /// vocabulary. `word` is UTF-8. Linear in its length times that of the longest piece.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct Entry {
    std::string_view piece;
    std::int32_t id;
  };
  template <class Score>
  void search(std::string_view word, std::vector<std::int32_t>& ids) const;
  std::int32_t find(std::string_view piece) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  UnigramSpec spec_;
  std::vector<Entry> sorted_;             ///< by piece; of equal pieces only the last
  std::array<std::size_t, 257> first_{};  ///< where pieces begin whose first byte is at least this
};

}  // namespace stof::model
