#include "model/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <limits>

#include "core/check.h"
#include "core/optional_libraries.h"
#include "core/text.h"
#include "model/protobuf.h"
#include "model/unicode.h"

namespace stof::model {
namespace {

using Type = SentencePieceSpec::Type;

std::string bytes_of(const SentencePieceSpec& spec, const SentencePieceSpec::Piece& piece) {
  if (piece.type == Type::kUnknown) return spec.unknown_text;
  const int byte = piece.type == Type::kByte ? byte_of_token(piece.text) : -1;
  return byte < 0 ? marks_to_blanks(piece.text) : std::string(1, static_cast<char>(byte));
}

/// A model that differs in one setting: messages that follow one another count as one, the later
/// fields over the earlier.
std::string without_blank(const std::string& model) {
  constexpr std::uint32_t kNormalizerSpec = 3, kAddDummyPrefix = 3;
  MessageWriter normalizer, added;
  normalizer.add(kAddDummyPrefix, std::int64_t{0});
  added.add(kNormalizerSpec, normalizer.message());
  return model + added.message();
}

}  // namespace

class SentencePieceTokenizer::Library {
 public:
  Library(const std::string& model, const std::string& where) {
    std::string complaint;
    try {
      const auto status = processor_.LoadFromSerializedProto(model);
      if (!status.ok()) complaint = status.ToString();
    } catch (const std::exception& error) {  // its trie's
      complaint = error.what();
    }
    STOF_CHECK(complaint.empty(), kCorrupt,
               "{}: expected a model of SentencePiece, got one with {}", where, complaint);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<int> own;
    const auto status = processor_.Encode(text, &own);
    STOF_CHECK(status.ok(), kInternal, "text: SentencePiece: {}", status.ToString());
    ids.insert(ids.end(), own.begin(), own.end());
  }

  std::string decode(const std::vector<int>& ids) const {
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    STOF_CHECK(status.ok(), kInternal, "ids: SentencePiece: {}", status.ToString());
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceSpec spec, const std::string& where)
    : TableTokenizer(spec.pieces.size() + spec.added.size(), where),
      spec_(std::move(spec)),
      library_((open_sentencepiece(), std::make_unique<Library>(spec_.model, where))),
      num_pieces_(static_cast<std::int64_t>(spec_.pieces.size())) {
  for (std::size_t i = 0; i < spec_.pieces.size(); ++i) {
    const SentencePieceSpec::Piece& piece = spec_.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    tokens_.add(piece.text, id, bytes_of(spec_, piece));
    if (piece.type != Type::kControl) continue;
    AddedToken token;
    token.content = piece.text;
    token.id = id;
    token.special = true;
    special_.push_back(std::move(token));
  }
  for (const AddedToken& token : spec_.added) {
    if (!tokens_.contains(token.id)) tokens_.add(token.content, token.id, token.content);
    special_.push_back(token);
  }
  for (const AddedToken& token : special_) {
    if (token.special) tokens_.mark_special(token.id);
    found_first_.add(decode_utf8(token.content, where), &token);
  }
  tokens_.check_frame(spec_.frame);
  if (spec_.unigram) unigram_.emplace(spec_);
  if (!spec_.unigram && spec_.blank_at_start_only && spec_.adds_blank)
    without_blank_ = std::make_unique<Library>(without_blank(spec_.model), where);
  spec_.model = {};  // the library has its own copy
  spec_.pieces = {};
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = spec_.frame.before;
  const std::u32string letters = decode_utf8(text, "text");
  found_first_.split(
      letters,
      [&](std::u32string_view piece) {
        const bool first = piece.data() == letters.data();
        const bool adds_blank = spec_.adds_blank && (first || !spec_.blank_at_start_only);
        if (unigram_) {
          unigram_->encode(encode_utf8(piece), adds_blank, ids);
        } else {
          const bool other = adds_blank != spec_.adds_blank;
          (other ? *without_blank_ : *library_).encode(encode_utf8(piece), ids);
        }
      },
      [&ids](const AddedToken& token) { ids.push_back(token.id); });
  ids.insert(ids.end(), spec_.frame.after.begin(), spec_.frame.after.end());
  return ids;
}

std::size_t SentencePieceTokenizer::leading_blanks() const {
  if (spec_.removes_blanks) return std::numeric_limits<std::size_t>::max();
  return spec_.adds_blank ? 1 : 0;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  std::vector<int> run;  // of pieces, which the library knows
  const auto end_run = [&] {
    if (!run.empty()) text += library_->decode(run);
    run.clear();
  };
  for (const std::int32_t id : ids) {
    const TokenTable::Token& token = tokens_.at(id);
    if (token.special) continue;
    if (id < num_pieces_) {
      run.push_back(id);
    } else {
      end_run();
      text += token.bytes;
    }
  }
  end_run();
  return text;
}

}  // namespace stof::model
