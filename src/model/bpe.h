#pragma once
// Byte-level byte pair encoding (Radford et al. 2019, "Language Models are Unsupervised Multitask
// Learners", section 2.2): ids equal to those of the Hugging Face tokenizers.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/added_tokens.h"
#include "model/bpe_split.h"
#include "model/json_fields.h"
#include "model/merge_table.h"
#include "model/subword.h"

namespace stof::model {

/// All that tokenizer.json or the metadata of a GGUF file say. Tokens are spelled as in those
/// files, where a printable character stands for each byte ("Ġthe" for " the").
struct BpeSpec {
  Vocabulary vocab;
  std::vector<std::pair<std::string, std::string>> merges;  ///< the first is merged first
  BpeSplit split = BpeSplit::kGpt2;
  bool normalize_nfc = false;     ///< canonical composition first
  bool add_prefix_space = false;  ///< a text is given a leading space unless it has one
  bool ignore_merges = false;     ///< a word that is a token is that token, whatever the merges say
  std::string unk_token;          ///< for bytes without a token; empty: such bytes are dropped
  std::vector<AddedToken> added;
  TextFrame frame;
};

/// Throws Corrupt, or Unsupported naming the setting that is not understood.
BpeSpec parse_bpe_json(std::string_view text, const std::string& file);
BpeSpec read_bpe_json(const Json& json, const std::string& file);
/// Whether a tokenizer.json's model is BPE that works on bytes: its pre-tokenizer says so.
bool is_byte_level(const JsonFields& root);
/// "vocab" and "merges" of a BPE model. Refuses dropout and marks inside or behind words.
void read_bpe_model(const JsonFields& fields, Vocabulary& vocab,
                    std::vector<std::pair<std::string, std::string>>& merges);
/// From the keys "tokenizer.ggml..." of a GGUF file's metadata (gguf_settings() makes the object).
BpeSpec read_gguf_bpe(const JsonFields& metadata);

/// Immutable; safe from several threads.
class Bpe final : public SubwordTokenizer {
 public:
  /// Throws Corrupt, starting with `where`, when two tokens have one id, a merge is of or gives
  /// what is no token, or a token the settings name is not in the vocabulary.
  Bpe(BpeSpec spec, const std::string& where);
  Bpe(Bpe&&) = default;
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;
  Bpe& operator=(Bpe&&) = delete;
  ~Bpe() override = default;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  const TextFrame& frame() const override { return spec_.frame; }
  bool contains(std::int32_t id) const override {
    return id >= 0 && id < num_ids() && tokens_[static_cast<std::size_t>(id)].spelled != nullptr;
  }
  const std::string& token(std::int32_t id) const override;
  const std::string& bytes(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override;
  std::int32_t find(const std::string& token) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t num_ids() const override { return static_cast<std::int64_t>(tokens_.size()); }

 private:
  struct Token {
    std::string bytes;
    const std::string* spelled = nullptr;  ///< in spec_; null: there is no such token
    bool special = false;
  };
  const Token& known_token(std::int32_t id) const;
  void add_token(const std::string& content, std::int32_t id, const std::string& where);
  void encode_text(std::u32string_view text, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  BpeSpec spec_;
  std::vector<Token> tokens_;           ///< by id
  std::vector<std::int32_t> byte_ids_;  ///< of each byte; -1: no token
  MergeTable merges_;
  AddedTokens raw_added_, normalized_added_;
};

}  // namespace stof::model
