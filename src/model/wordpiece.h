#pragma once
// BERT's tokenizer: ids equal to those of the Hugging Face BertTokenizerFast.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/added_tokens.h"
#include "model/bert_normalizer.h"
#include "model/tokenizer_fields.h"

namespace stof::model {

/// All that tokenizer.json or vocab.txt say.
struct WordPieceSpec {
  BertNormalizer normalizer;
  std::unordered_map<std::string, std::int32_t> vocab;
  std::string unk_token = "[UNK]";
  std::string continuing_prefix = "##";
  std::int64_t max_chars_per_word = 100;  ///< a longer word is unknown
  std::vector<AddedToken> added;
  TextFrame frame;              ///< [CLS] and [SEP]
  std::int64_t max_tokens = 0;  ///< limit stated by the file; 0 = none
};

/// Reads tokenizer.json, else vocab.txt, with tokenizer_config.json beside it. Throws NotFound,
/// Corrupt, or Unsupported naming the setting that is not understood.
WordPieceSpec load_wordpiece(const std::string& folder);
/// The same where tokenizer.json was read already.
WordPieceSpec load_wordpiece(const std::string& folder, const Json& tokenizer);
WordPieceSpec parse_tokenizer_json(std::string_view text, const std::string& file);
WordPieceSpec read_wordpiece_json(const Json& json, const std::string& file);
/// One token a line, its id being the line's number. `config`: tokenizer_config.json or empty.
WordPieceSpec parse_vocab_txt(std::string_view text, const std::string& file,
                              std::string_view config, const std::string& config_file);

/// Immutable; safe from several threads.
class WordPiece {
 public:
  /// Throws Corrupt, starting with `where`, when a token the settings name is not in the vocabulary
  /// or two tokens have one id.
  WordPiece(WordPieceSpec spec, const std::string& where);
  WordPiece(WordPiece&&) = default;
  WordPiece(const WordPiece&) = delete;
  WordPiece& operator=(const WordPiece&) = delete;

  /// Ids with the special tokens around them, cut to max_tokens (0 = no limit) in all. Time grows
  /// linearly with the text. Throws InvalidArgument on invalid UTF-8 (naming the byte) and when
  /// max_tokens has no room for the special tokens.
  std::vector<std::int32_t> encode(std::string_view text, std::int64_t max_tokens = 0,
                                   bool* truncated = nullptr) const;

  /// The id of a token, or -1.
  std::int32_t find(const std::string& token) const;
  bool contains(std::int32_t id) const { return tokens_.contains(id); }
  /// Throws InvalidArgument on an id that no token has.
  const std::string& token(std::int32_t id) const;
  /// Largest id + 1.
  std::int64_t num_ids() const { return num_ids_; }
  std::int64_t max_tokens() const { return spec_.max_tokens; }
  std::int64_t num_special() const {
    return static_cast<std::int64_t>(spec_.frame.before.size() + spec_.frame.after.size());
  }

 private:
  void add_token(const std::string& content, std::int32_t id, const std::string& where);
  void encode_words(std::u32string_view normalized, std::size_t limit,
                    std::vector<std::int32_t>& ids) const;
  void encode_word(std::u32string_view word, std::vector<std::int32_t>& ids) const;

  WordPieceSpec spec_;
  // The maps below refer to strings inside spec_.
  std::unordered_map<std::int32_t, const std::string*> tokens_;  ///< by id
  std::unordered_map<std::string_view, std::int32_t> starts_;
  std::unordered_map<std::string_view, std::int32_t> continuations_;  ///< without the prefix
  std::int64_t num_ids_ = 0;
  std::size_t longest_token_ = 0;  ///< bytes
  std::int32_t unk_id_ = 0;
  AddedTokens raw_added_, normalized_added_;
};

}  // namespace stof::model
