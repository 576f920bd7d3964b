// .model files, what tokenizer_config.json says beside them, and GGUF metadata ->
// SentencePieceSpec.

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "core/check.h"
#include "core/text.h"
#include "model/charsmap.h"
#include "model/protobuf.h"
#include "model/sentencepiece.h"

namespace stof::model {
namespace {

using Piece = SentencePieceSpec::Piece;
using Type = SentencePieceSpec::Type;

// Numbers of fields in the format's ModelProto and the messages in it.
constexpr std::uint32_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr std::uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr std::uint32_t kModelType = 3, kSuffix = 24, kByteFallback = 35, kUnknownSurface = 44;
constexpr std::uint32_t kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4,
                        kEscapeWhitespaces = 5;
constexpr std::int64_t kUnigram = 1, kBpe = 2;

Piece read_piece(std::string_view message, const std::string& where) {
  Piece piece;
  MessageReader fields(message, where);
  while (fields.next()) {
    if (fields.number() == kPieceText) piece.text = fields.bytes();
    if (fields.number() == kPieceScore) piece.score = fields.number32();
    if (fields.number() != kPieceType) continue;
    const std::int64_t type = fields.integer();
    STOF_CHECK(type >= static_cast<int>(Type::kNormal) && type <= static_cast<int>(Type::kByte),
               kCorrupt, "{}: type: expected a number from 1 to 6, got {}", where, type);
    piece.type = static_cast<Type>(type);
  }
  return piece;
}

void read_trainer(std::string_view message, const std::string& where, SentencePieceSpec& spec) {
  MessageReader fields(message, where);
  while (fields.next()) {
    if (fields.number() == kUnknownSurface) {
      spec.unknown_text = fields.bytes();
      STOF_CHECK(is_valid_utf8(spec.unknown_text), kCorrupt,
                 "{}: unk_surface: expected UTF-8, got {}", where, quote_text(spec.unknown_text));
    }
    if (fields.number() == kSuffix && fields.boolean())
      throw_error(ErrorCode::kUnsupported,
                  "{}: treat_whitespace_as_suffix: expected false, got true", where);
    if (fields.number() == kByteFallback) spec.byte_fallback = fields.boolean();
    if (fields.number() != kModelType) continue;
    const std::int64_t type = fields.integer();
    STOF_CHECK(type == kUnigram || type == kBpe, kUnsupported,
               "{}: model_type: expected 1 (unigram) or 2 (BPE), got {}", where, type);
    spec.unigram = type == kUnigram;
  }
}

/// Also of a denormaliser, which has the same fields.
void read_normalizer(std::string_view message, const std::string& where, SentencePieceSpec* spec) {
  MessageReader fields(message, where);
  while (fields.next()) {
    if (fields.number() == kCharsmap && !fields.bytes().empty()) {
      auto charsmap = std::make_shared<const Charsmap>(fields.bytes(), where);  // checks it
      if (spec != nullptr) spec->charsmap = std::move(charsmap);
    }
    if (spec == nullptr) continue;
    if (fields.number() == kAddDummyPrefix) spec->adds_blank = fields.boolean();
    if (fields.number() == kRemoveExtraWhitespaces) spec->removes_blanks = fields.boolean();
    if (fields.number() == kEscapeWhitespaces)
      STOF_CHECK(fields.boolean(), kUnsupported, "{}: escape_whitespaces: expected true, got false",
                 where);
  }
}

void check_pieces(const std::vector<Piece>& pieces, const std::string& where) {
  STOF_CHECK(!pieces.empty() && pieces.size() <= static_cast<std::size_t>(kMaxTokenId), kCorrupt,
             "{}: expected a model of SentencePiece with pieces, got {}", where, pieces.size());
  std::unordered_set<std::string_view> seen;
  for (const Piece& piece : pieces) {
    const std::string name = fmt::format("{}: piece {}", where, quote_text(piece.text));
    STOF_CHECK(is_valid_utf8(piece.text) && !piece.text.empty() &&
                   piece.text.find('\0') == std::string::npos,
               kCorrupt, "{}: expected UTF-8 of at least one character, none of them U+0000", name);
    STOF_CHECK(std::isfinite(piece.score), kCorrupt, "{}: score: expected a finite number, got {}",
               name, piece.score);
    STOF_CHECK(seen.insert(piece.text).second, kCorrupt, "{}: expected it once, got it twice",
               name);
    STOF_CHECK(piece.type != Type::kByte || byte_of_token(piece.text) >= 0, kCorrupt,
               "{}: expected the spelling of a byte such as \"<0x0A>\"", name);
  }
}

std::int32_t require_token(const JsonFields& config, const char* name,
                           const SentencePieceSpec& spec) {
  const std::string token = read_special(config, name, "");
  for (std::size_t i = 0; i < spec.pieces.size(); ++i)
    if (spec.pieces[i].text == token) return static_cast<std::int32_t>(i);
  for (const AddedToken& added : spec.added)
    if (added.content == token) return added.id;
  config.fail(name, "a token of the vocabulary");
}

void read_added(const JsonFields& config, SentencePieceSpec& spec) {
  if (!config.has("added_tokens_decoder")) return;
  const JsonFields all = config.object("added_tokens_decoder");
  for (const auto& [key, value] : config.find("added_tokens_decoder")->items()) {
    const bool is_number =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) all.fail(key.c_str(), "ids as names");
    const JsonFields fields(value, all.where() + ": " + key);
    AddedToken token;
    token.id = std::stoi(key);
    token.content = fields.string("content");
    if (fields.boolean("single_word", false)) fields.refuse("single_word", "false");
    if (fields.boolean("normalized", false) &&
        token.id >= static_cast<std::int32_t>(spec.pieces.size()))
      fields.refuse("normalized", "false");
    token.lstrip = fields.boolean("lstrip", false);
    token.rstrip = fields.boolean("rstrip", false);
    token.special = fields.boolean("special", false);
    const auto index = static_cast<std::size_t>(token.id);
    if (index < spec.pieces.size()) {
      if (spec.pieces[index].text != token.content)
        fields.fail("content", quote_text(spec.pieces[index].text) + ", the piece of this id");
      // The unknown piece stands for what is in no other; its spelling in a text is a text.
      if (spec.pieces[index].type == Type::kUnknown) continue;
    }
    spec.added.push_back(std::move(token));
  }
}

}  // namespace

SentencePieceSpec parse_sentencepiece(std::string bytes, const std::string& where) {
  SentencePieceSpec spec;
  MessageReader model(bytes, where);
  while (model.next()) {
    if (model.number() == kPieces)
      spec.pieces.push_back(
          read_piece(model.bytes(), fmt::format("{}: piece {}", where, spec.pieces.size())));
    if (model.number() == kTrainerSpec) read_trainer(model.bytes(), where, spec);
    if (model.number() == kNormalizerSpec) read_normalizer(model.bytes(), where, &spec);
    if (model.number() == kDenormalizerSpec) read_normalizer(model.bytes(), where, nullptr);
  }
  check_pieces(spec.pieces, where);
  spec.model = std::move(bytes);
  return spec;
}

void read_sentencepiece_config(const JsonFields& config, const std::string& where,
                               SentencePieceSpec& spec) {
  struct Class {
    std::string_view name;
    bool bos, eos, legacy;
  };
  static constexpr std::array<Class, 3> kClasses = {{{"LlamaTokenizer", true, false, true},
                                                     {"GemmaTokenizer", true, false, true},
                                                     {"T5Tokenizer", false, true, true}}};
  std::string name = config.string("tokenizer_class", "");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto known = std::ranges::find(kClasses, name, &Class::name);
  const bool stated = config.has("add_bos_token") && config.has("add_eos_token");
  if (known == kClasses.end() && !(name.empty() && stated))
    config.refuse("tokenizer_class",
                  "\"LlamaTokenizer\", \"GemmaTokenizer\" or \"T5Tokenizer\", or none with "
                  "add_bos_token and add_eos_token");
  read_added(config, spec);
  const Class defaults = known == kClasses.end() ? Class{"", false, false, true} : *known;
  if (config.boolean("add_bos_token", defaults.bos))
    spec.frame.before = {require_token(config, "bos_token", spec)};
  if (config.boolean("add_eos_token", defaults.eos))
    spec.frame.after = {require_token(config, "eos_token", spec)};
  spec.blank_at_start_only = !config.boolean("legacy", defaults.legacy);
  if (!config.boolean("add_prefix_space", spec.adds_blank) && spec.adds_blank)
    config.refuse("add_prefix_space", fmt::format("true, as in {}", where));
}

SentencePieceSpec read_gguf_sentencepiece(const JsonFields& metadata) {
  const std::string& where = metadata.where();
  const Json& tokens = metadata.array("tokenizer.ggml.tokens");
  const Json& types = metadata.array("tokenizer.ggml.token_type");
  const Json& scores = metadata.array("tokenizer.ggml.scores");
  for (const auto& [name, list] : {std::pair("tokenizer.ggml.token_type", &types),
                                   std::pair("tokenizer.ggml.scores", &scores)})
    if (list->size() != tokens.size())
      metadata.fail(name, fmt::format("{} values, one a token", tokens.size()));
  // Some files call the unknown piece a control piece, and tell which it is elsewhere.
  const auto unknown = metadata.integer("tokenizer.ggml.unknown_token_id", 0, kMaxTokenId, -1);
  const bool is_typed = std::ranges::any_of(types, [](const Json& type) { return type == 2; });
  SentencePieceSpec spec;
  MessageWriter model;
  bool has_bytes = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string()) metadata.fail("tokenizer.ggml.tokens", "an array of strings");
    if (!types[i].is_number_integer() || types[i] < 1 || types[i] > 6)
      metadata.fail("tokenizer.ggml.token_type", "an array of integers from 1 to 6");
    if (!scores[i].is_number()) metadata.fail("tokenizer.ggml.scores", "an array of numbers");
    Piece piece = {tokens[i].get<std::string>(), scores[i].get<float>(),
                   static_cast<Type>(types[i].get<int>())};
    if (!is_typed && static_cast<std::int64_t>(i) == unknown) piece.type = Type::kUnknown;
    has_bytes = has_bytes || piece.type == Type::kByte;
    MessageWriter fields;
    fields.add(kPieceText, piece.text);
    fields.add(kPieceScore, piece.score);
    fields.add(kPieceType, static_cast<std::int64_t>(piece.type));
    model.add(kPieces, fields.message());
    spec.pieces.push_back(piece);
  }
  check_pieces(spec.pieces, where);
  spec.adds_blank = metadata.boolean("tokenizer.ggml.add_space_prefix", true);
  spec.removes_blanks = metadata.boolean("tokenizer.ggml.remove_extra_whitespaces", false);
  MessageWriter trainer, normalizer;
  spec.unigram = false;
  spec.byte_fallback = has_bytes;
  trainer.add(kModelType, kBpe);
  trainer.add(kByteFallback, std::int64_t{has_bytes});
  normalizer.add(kAddDummyPrefix, std::int64_t{spec.adds_blank});
  normalizer.add(kRemoveExtraWhitespaces, std::int64_t{spec.removes_blanks});
  model.add(kTrainerSpec, trainer.message());
  model.add(kNormalizerSpec, normalizer.message());
  spec.model = model.message();
  const auto token = [&](const char* name) {
    return static_cast<std::int32_t>(metadata.integer(name, 0, kMaxTokenId));
  };
  if (metadata.boolean("tokenizer.ggml.add_bos_token", true))
    spec.frame.before = {token("tokenizer.ggml.bos_token_id")};
  if (metadata.boolean("tokenizer.ggml.add_eos_token", false))
    spec.frame.after = {token("tokenizer.ggml.eos_token_id")};
  return spec;
}

}  // namespace stof::model
