#pragma once
// Tokenizers whose ids can be written as text again: what decoders and encoder-decoders use.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer_fields.h"
#include "model/utf8_stream.h"

namespace stof::model {

/// Immutable; safe from several threads.
class SubwordTokenizer {
 public:
  virtual ~SubwordTokenizer() = default;

  /// Ids of the text with what stands before and behind every text, the frame (BOS, EOS). Special
  /// tokens are found in the text. Throws InvalidArgument naming the first byte that is not UTF-8.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  virtual const TextFrame& frame() const = 0;

  virtual bool contains(std::int32_t id) const = 0;
  /// A token as it is spelled in the files. Throws InvalidArgument on an id that no token has.
  virtual const std::string& token(std::int32_t id) const = 0;
  /// The bytes an id stands for within a text; part of a character perhaps: Utf8Stream joins them.
  /// Throws InvalidArgument on an id that no token has.
  virtual const std::string& bytes(std::int32_t id) const = 0;
  /// Whether the token steers the model and is no part of the text.
  virtual bool is_special(std::int32_t id) const = 0;
  /// The id of a token as it is spelled in the files, or -1.
  virtual std::int32_t find(const std::string& token) const = 0;
  /// The whole text of the ids, without special tokens and without the blank that the tokenizer
  /// puts before every text; what is not UTF-8 becomes U+FFFD.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// How many blanks decode() takes away from the beginning of a text.
  virtual std::size_t leading_blanks() const { return 0; }
  /// Largest id + 1.
  virtual std::int64_t num_ids() const = 0;

 protected:
  SubwordTokenizer() = default;
  SubwordTokenizer(const SubwordTokenizer&) = default;
  SubwordTokenizer(SubwordTokenizer&&) = default;
  SubwordTokenizer& operator=(const SubwordTokenizer&) = default;
  SubwordTokenizer& operator=(SubwordTokenizer&&) = default;
};

/// The tokenizer of a folder: tokenizer.json (byte-level BPE, or SentencePiece's unigram and BPE
/// models), else tokenizer.model, spiece.model or sentencepiece.bpe.model. Throws NotFound, Corrupt
/// or Unsupported, naming file and setting.
std::unique_ptr<const SubwordTokenizer> load_subword(const std::string& folder);
/// Of a GGUF file's metadata (gguf_settings() makes the object).
std::unique_ptr<const SubwordTokenizer> read_gguf_subword(const JsonFields& metadata);

/// Whether a folder has files that load_subword() reads other than tokenizer.json.
bool has_sentencepiece_file(const std::string& folder);

/// Text of ids as they come, special tokens left out.
class TokenStream {
 public:
  /// `begins_text`: the ids are a whole text, as decode() takes them; else they continue one.
  TokenStream(const SubwordTokenizer& tokenizer, bool begins_text)
      : tokenizer_(tokenizer), blanks_(begins_text ? tokenizer.leading_blanks() : 0) {}

  /// What can be said after the token. Throws as SubwordTokenizer::bytes().
  std::string push(std::int32_t id);
  /// U+FFFD where the text ends inside a character.
  std::string finish() { return stream_.finish(); }

 private:
  const SubwordTokenizer& tokenizer_;
  std::size_t blanks_;  ///< still to be taken away
  Utf8Stream stream_;
};

/// Tokens by their ids.
class TokenTable {
 public:
  struct Token {
    std::string spelled, bytes;
    bool exists = false, special = false;
  };

  /// `expected` tokens are to come: ids far above are refused, as memory for nothing.
  TokenTable(std::size_t expected, std::string where);

  /// Throws Corrupt for an id that another token has or that is too large.
  void add(const std::string& spelled, std::int32_t id, std::string bytes);
  void mark_special(std::int32_t id) { tokens_[static_cast<std::size_t>(id)].special = true; }
  void set_bytes(std::int32_t id, std::string bytes) {
    tokens_[static_cast<std::size_t>(id)].bytes = std::move(bytes);
  }
  /// Throws Corrupt for an id of the frame that no token has.
  void check_frame(const TextFrame& frame) const;

  bool contains(std::int32_t id) const {
    return id >= 0 && id < size() && tokens_[static_cast<std::size_t>(id)].exists;
  }
  /// Throws InvalidArgument on an id that no token has.
  const Token& at(std::int32_t id) const;
  std::int32_t find(const std::string& spelled) const;
  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  std::vector<Token> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::size_t limit_;
  std::string where_;
};

/// A tokenizer whose tokens are in a table.
class TableTokenizer : public SubwordTokenizer {
 public:
  bool contains(std::int32_t id) const override { return tokens_.contains(id); }
  const std::string& token(std::int32_t id) const override { return tokens_.at(id).spelled; }
  const std::string& bytes(std::int32_t id) const override { return tokens_.at(id).bytes; }
  bool is_special(std::int32_t id) const override { return tokens_.at(id).special; }
  std::int32_t find(const std::string& token) const override { return tokens_.find(token); }
  std::int64_t num_ids() const override { return tokens_.size(); }

 protected:
  /// As TokenTable's.
  TableTokenizer(std::size_t expected, const std::string& where) : tokens_(expected, where) {}

  TokenTable tokens_;
};

/// U+2581, which stands for a blank in SentencePiece's tokens.
inline constexpr std::string_view kBlankMark = "\u2581";
/// Every kBlankMark becomes a blank.
std::string marks_to_blanks(std::string_view text);
/// 0 to 255 of a token spelled "<0x0A>", else -1.
int byte_of_token(std::string_view token);
/// "<0x0A>"
std::string byte_token(unsigned char byte);

}  // namespace stof::model
