#pragma once
// SentencePiece models (Kudo & Richardson 2018, arXiv 1808.06226) by the library of that name: from
// its own files, and from the vocabulary in a GGUF file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/charsmap.h"
#include "model/subword.h"
#include "model/unigram.h"

namespace stof::model {

struct SentencePieceSpec {
  /// As the format numbers them.
  enum class Type : std::uint8_t {
    kNormal = 1,
    kUnknown,
    kControl,
    kUserDefined,
    kUnused,
    kByte,
  };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::string model;  ///< a serialised ModelProto
  std::vector<Piece> pieces;
  bool adds_blank = true;      ///< a blank goes before every text
  bool removes_blanks = true;  ///< blanks at the ends, and all but one of several in a row, go
  std::string unknown_text = " \u2047 ";  ///< what an unknown piece is decoded to
  bool unigram = true;                    ///< else BPE
  bool byte_fallback = false;
  std::shared_ptr<const Charsmap> charsmap;  ///< what the text is normalised by; null: nothing

  /// No blank goes before what follows a special token within a text.
  bool blank_at_start_only = false;
  std::vector<AddedToken> added;  ///< beside the pieces
  TextFrame frame;
};

/// Reads and checks a .model file's bytes. Throws Corrupt, starting with `where`, for what is no
/// such model: pieces that are no UTF-8 or listed twice, scores that are not finite, tables that
/// lead astray.
SentencePieceSpec parse_sentencepiece(std::string bytes, const std::string& where);
/// What tokenizer_config.json says beside one: "added_tokens_decoder", the frame, "legacy". Which
/// tokens go around a text is told by "add_bos_token" and "add_eos_token", else by
/// "tokenizer_class". Throws Corrupt or Unsupported.
void read_sentencepiece_config(const JsonFields& config, const std::string& where,
                               SentencePieceSpec& spec);
/// From the keys "tokenizer.ggml..." of a GGUF file whose tokenizer.ggml.model is "llama".
SentencePieceSpec read_gguf_sentencepiece(const JsonFields& metadata);

/// Ids of unigram models as `sentencepiece` 0.2 and the `tokenizers` library give them. The library
/// that is linked, 0.1, takes another sequence of pieces where several are equally likely: of 27
/// dashes 16 and 11 where those take 11 and 16.
class UnigramSearch {
 public:
  explicit UnigramSearch(const SentencePieceSpec& spec);
  /// `adds_blank`: before this text. UTF-8.
  void encode(std::string_view text, bool adds_blank, std::vector<std::int32_t>& ids) const;

 private:
  std::string normalized(std::string_view text, bool adds_blank) const;
  /// What the beginning of the text becomes, and how many bytes that is.
  std::pair<std::string_view, std::size_t> normalized_prefix(std::string_view text) const;

  std::shared_ptr<const Charsmap> charsmap_;
  bool removes_blanks_;
  std::vector<std::string> user_defined_;  ///< longest first
  UnigramModel model_;
};

class SentencePieceTokenizer final : public TableTokenizer {
 public:
  /// Throws Corrupt, starting with `where`, for what the library refuses.
  SentencePieceTokenizer(SentencePieceSpec spec, const std::string& where);
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer(SentencePieceTokenizer&&) = delete;
  SentencePieceTokenizer& operator=(SentencePieceTokenizer&&) = delete;
  ~SentencePieceTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  const TextFrame& frame() const override { return spec_.frame; }
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::size_t leading_blanks() const override;

 private:
  class Library;  ///< a loaded model

  SentencePieceSpec spec_;
  std::vector<AddedToken> special_;  ///< control pieces, then spec_.added
  AddedTokens found_first_;
  std::optional<UnigramSearch> unigram_;
  std::unique_ptr<const Library> library_;
  std::unique_ptr<const Library> without_blank_;  ///< adds none; null where it never has to
  std::int64_t num_pieces_ = 0;
};

}  // namespace stof::model
