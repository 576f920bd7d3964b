#pragma once
// The unigram model of subwords (Kudo 2018, arXiv 1804.10959, section 3.2).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stof::model {

/// Immutable; safe from several threads.
class UnigramModel {
 public:
  /// Pieces with their logarithmic probabilities, in the order of ids; `unknown` is the id of what
  /// is in no piece. Throws Corrupt, starting with `where`, for no pieces, an unknown that is none,
  /// or a score that is not finite.
  UnigramModel(std::vector<std::pair<std::string, double>> pieces, std::int64_t unknown,
               bool byte_fallback, const std::string& where);

  /// Appends the ids of the likeliest sequence of pieces for a word, as the `tokenizers` library
  /// finds it: scores are added in double, of equal sums the first found counts, and unknown
  /// characters in a row are one unknown, or with byte_fallback their bytes' tokens where all are
  /// in the vocabulary. `word` is UTF-8. Linear in its length times that of the longest piece.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

  const std::vector<std::pair<std::string, double>>& pieces() const { return pieces_; }
  std::int32_t unknown() const { return unknown_; }

 private:
  struct Entry {
    std::string_view piece;
    std::int32_t id;
  };
  std::int32_t find(std::string_view piece) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::vector<std::pair<std::string, double>> pieces_;
  std::vector<Entry> sorted_;             ///< by piece; of equal pieces only the last
  std::array<std::size_t, 257> first_{};  ///< where pieces begin whose first byte is at least this
  std::array<std::int32_t, 256> byte_ids_{};  ///< -1: no token
  std::int32_t unknown_;
  bool byte_fallback_;
  double unknown_score_ = 0;
};

}  // namespace stof::model
