#pragma once
// Properties of code points as the Hugging Face tokenizers see them; sorted, not overlapping.

#include <cstddef>
#include <cstdint>

namespace stof::model {

struct CodePointRange {
  char32_t first, last;
};
struct CombiningRange {
  char32_t first, last;
  std::uint8_t combining_class;
};
/// first, first + step, ... last become lower case by adding delta.
struct LowerRange {
  char32_t first, last;
  std::uint8_t step;
  std::int32_t delta;
};

extern const CodePointRange kControl[];  ///< dropped by clean_text (besides U+0000 and U+FFFD)
extern const std::size_t kControlSize;
extern const CodePointRange kPunctuation[];  ///< a word of its own
extern const std::size_t kPunctuationSize;
extern const CodePointRange kNonspacing[];  ///< dropped by strip_accents
extern const std::size_t kNonspacingSize;
extern const CombiningRange kCombining[];  ///< combining class other than 0
extern const std::size_t kCombiningSize;
extern const LowerRange kLower[];  ///< all but U+0130, the only one that becomes two code points
extern const std::size_t kLowerSize;

// Of byte-level BPE (bpe_tables.cc).
extern const CodePointRange kLetters[];  ///< \p{L} of its patterns
extern const std::size_t kLettersSize;
extern const CodePointRange kNumbers[];  ///< \p{N}
extern const std::size_t kNumbersSize;
extern const CodePointRange kNewNumbers[];  ///< numeric for the step "Digits" alone
extern const std::size_t kNewNumbersSize;

}  // namespace stof::model
