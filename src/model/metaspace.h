#pragma once
// tokenizer.json of SentencePiece's descent: blanks become U+2581, and a unigram or BPE model works
// on characters. Ids equal those of the Hugging Face tokenizers.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/charsmap.h"
#include "model/merge_table.h"
#include "model/subword.h"
#include "model/unigram.h"

namespace stof::model {

struct NormalizerStep {
  enum class Kind : std::uint8_t {
    kCharsmap,
    kReplace,     ///< every `from` becomes `to`
    kReplaceRun,  ///< two and more blanks together become `to`
    kPrepend,     ///< `to` goes before a text that is not empty
    kStrip,       ///< whitespace goes from the left, the right or both ends
  };
  Kind kind = Kind::kReplace;
  std::string from, to;
  bool left = false, right = false;
  std::shared_ptr<const Charsmap> charsmap;
};

/// Blanks become U+2581.
struct Metaspace {
  enum class Prepend : std::uint8_t { kAlways, kFirst, kNever };
  Prepend prepend = Prepend::kAlways;  ///< a mark before every piece, before the text, or none
  bool split = true;                   ///< every mark begins a word
};

/// What a tokenizer.json says.
struct MetaspaceSpec {
  std::vector<NormalizerStep> normalizer;
  bool whitespace_split = false;  ///< words are what stands between whitespace
  std::optional<Metaspace> metaspace;

  /// The model is unigram where there are pieces, else BPE.
  std::vector<std::pair<std::string, double>> pieces;
  std::int64_t unknown = -1;  ///< of pieces
  Vocabulary vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  std::string unk_token;
  bool fuse_unk = false;
  bool ignore_merges = false;
  bool byte_fallback = false;

  bool decode_bytes = false;            ///< tokens spelled "<0x0A>" are bytes
  bool decode_drops_marks = false;      ///< the first token's marks are no blanks
  std::size_t decode_drops_blanks = 0;  ///< how many are cut from the beginning of a text
  std::vector<AddedToken> added;
  TextFrame frame;

  Vocabulary ids() const;  ///< of the model's tokens, whichever it is
};

/// Throws Corrupt, or Unsupported naming the setting that is not understood.
MetaspaceSpec read_metaspace_json(const Json& json, const std::string& file);

class MetaspaceTokenizer final : public TableTokenizer {
 public:
  /// Throws Corrupt, starting with `where`, when the vocabulary contradicts itself.
  MetaspaceTokenizer(MetaspaceSpec spec, const std::string& where);
  MetaspaceTokenizer(const MetaspaceTokenizer&) = delete;
  MetaspaceTokenizer& operator=(const MetaspaceTokenizer&) = delete;
  MetaspaceTokenizer(MetaspaceTokenizer&&) = delete;
  MetaspaceTokenizer& operator=(MetaspaceTokenizer&&) = delete;
  ~MetaspaceTokenizer() override = default;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  const TextFrame& frame() const override { return spec_.frame; }
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::size_t leading_blanks() const override;

 private:
  void read_merges(const std::string& where);
  std::string normalized(std::string_view text) const;
  void encode_piece(std::string text, bool first, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_bpe(std::string_view word, std::vector<std::int32_t>& ids) const;

  MetaspaceSpec spec_;
  std::optional<UnigramModel> unigram_;
  MergeTable merges_;
  std::vector<std::int32_t> byte_ids_;  ///< of each byte's token; -1: none
  AddedTokens raw_added_, normalized_added_;
};

}  // namespace stof::model
