#pragma once
// The tokenizer of an encoder: WordPiece, byte-level BPE or SentencePiece's models, whichever the
// checkpoint's files have.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/subword.h"
#include "model/wordpiece.h"

namespace stof::model {

/// Immutable; safe from several threads.
class TextTokenizer {
 public:
  /// Reads tokenizer.json, SentencePiece's file or vocab.txt, and tokenizer_config.json beside it.
  /// Throws what the loaders of these kinds do.
  static TextTokenizer load(const std::string& folder);

  /// As WordPiece::encode(): ids with the special tokens around them, cut to max_tokens (0 = no
  /// limit) in all.
  std::vector<std::int32_t> encode(std::string_view text, std::int64_t max_tokens = 0,
                                   bool* truncated = nullptr) const;

  /// As the files spell it. Throws InvalidArgument on an id that no token has.
  const std::string& token(std::int32_t id) const;
  /// What stands for it in a text: of byte-level BPE " the", spelled "\u0120the".
  std::string text(std::int32_t id) const;
  /// The token that stands for a hidden one: mask_token of tokenizer_config.json, else "[MASK]" or
  /// "<mask>"; -1 where the vocabulary has none.
  std::int32_t mask_id() const { return mask_id_; }
  bool contains(std::int32_t id) const;  ///< whether a token has this id
  /// Largest id + 1.
  std::int64_t num_ids() const;
  std::int64_t max_tokens() const { return max_tokens_; }  ///< the files' limit; 0 = none
  std::int64_t num_special() const;

 private:
  using Kind = std::variant<WordPiece, std::unique_ptr<const SubwordTokenizer>>;
  TextTokenizer(Kind kind, std::int64_t max_tokens, const std::string& folder);

  Kind kind_;
  std::int64_t max_tokens_;
  std::int32_t mask_id_ = -1;
};

}  // namespace stof::model
