#include "model/bpe.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "core/check.h"
#include "core/text.h"
#include "model/utf8_stream.h"

namespace stof::model {
namespace {

/// The character that stands for each byte: printable ones of Latin-1 for themselves, the others
/// from U+0100 on in their order.
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}

/// Bytes of the characters up to U+0143; -1 for those that stand for none.
std::array<int, 0x144> character_bytes() {
  std::array<int, 0x144> bytes{};
  bytes.fill(-1);
  const auto characters = byte_characters();
  for (int byte = 0; byte < 256; ++byte) bytes[characters[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

/// The bytes a token stands for; one with another character stands for itself.
std::string token_bytes(const std::string& token, const std::string& where) {
  static const std::array<int, 0x144> kBytes = character_bytes();
  std::string bytes;
  for (const char32_t c : decode_utf8(token, where)) {
    if (c >= kBytes.size() || kBytes[c] < 0) return token;
    bytes += static_cast<char>(kBytes[c]);
  }
  return bytes;
}

std::string composed(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  STOF_CHECK(size >= 0, kOutOfMemory, "text: normalisation of {} bytes failed: {}", text.size(),
             utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(out, std::free);
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(size)};
}

}  // namespace

Bpe::Bpe(BpeSpec spec, const std::string& where) : spec_(std::move(spec)) {
  for (const auto& [content, id] : spec_.vocab) add_token(content, id, where);
  for (const AddedToken& token : spec_.added) {
    if (!spec_.vocab.contains(token.content)) add_token(token.content, token.id, where);
    tokens_[static_cast<std::size_t>(token.id)].special = token.special;
    AddedTokens& set = token.normalized ? normalized_added_ : raw_added_;
    const bool compose = token.normalized && spec_.normalize_nfc;
    set.add(decode_utf8(compose ? composed(token.content) : token.content, where), &token);
  }

  const auto id_of = [&](const std::string& token, std::string_view what) {
    const auto found = spec_.vocab.find(token);
    STOF_CHECK(found != spec_.vocab.end(), kCorrupt,
               "{}: {}: expected a token of the vocabulary, got {}", where, what,
               quote_text(token));
    return found->second;
  };
  byte_ids_.assign(256, spec_.unk_token.empty() ? -1 : id_of(spec_.unk_token, "unk_token"));
  const auto characters = byte_characters();
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character, characters[byte]);
    const auto found = spec_.vocab.find(character);
    if (found != spec_.vocab.end()) byte_ids_[byte] = found->second;
  }
  for (std::size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    const std::string what = fmt::format("merge {}", rank);
    merges_.add(id_of(left, what), id_of(right, what), static_cast<std::int32_t>(rank),
                id_of(left + right, what));
  }
  for (const auto* ids : {&spec_.frame.before, &spec_.frame.after})
    for (const std::int32_t id : *ids)
      STOF_CHECK(
          id >= 0 && id < num_ids() && tokens_[static_cast<std::size_t>(id)].spelled != nullptr,
          kCorrupt, "{}: post_processor: expected the id of a token, got {}", where, id);
}

void Bpe::add_token(const std::string& content, std::int32_t id, const std::string& where) {
  const auto index = static_cast<std::size_t>(id);
  // Ids are dense in every file; a gap of millions would be memory for nothing.
  const std::size_t limit = 2 * (spec_.vocab.size() + spec_.added.size()) + 4096;
  STOF_CHECK(id >= 0 && index < limit, kCorrupt, "{}: token {}: expected an id below {}, got {}",
             where, quote_text(content), limit, id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  Token& token = tokens_[index];
  STOF_CHECK(token.spelled == nullptr, kCorrupt, "{}: id {}: expected one token, got {} as well",
             where, id, quote_text(content));
  token = {token_bytes(content, where), &content, false};
}

std::vector<std::int32_t> Bpe::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = spec_.frame.before;
  const auto add_id = [&ids](const AddedToken& token) { ids.push_back(token.id); };
  raw_added_.split(
      decode_utf8(text, "text"),
      [&](std::u32string_view piece) {
        std::u32string normalized(piece);
        if (spec_.normalize_nfc)
          normalized = decode_utf8(composed(encode_utf8(piece)), "normalised text");
        normalized_added_.split(
            normalized, [&](std::u32string_view words) { encode_text(words, ids); }, add_id);
      },
      add_id);
  ids.insert(ids.end(), spec_.frame.after.begin(), spec_.frame.after.end());
  return ids;
}

void Bpe::encode_text(std::u32string_view text, std::vector<std::int32_t>& ids) const {
  std::u32string spaced;
  if (spec_.add_prefix_space && !text.starts_with(U' ')) {
    spaced = U' ';
    text = spaced += text;
  }
  for (const std::u32string_view word : split_words(spec_.split, text))
    encode_word(encode_utf8(word), ids);
}

void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (spec_.ignore_merges) {
    static const std::array<char32_t, 256> kCharacters = byte_characters();
    std::string spelled;
    for (const char byte : word)
      append_utf8(spelled, kCharacters[static_cast<unsigned char>(byte)]);
    const auto found = spec_.vocab.find(spelled);
    if (found != spec_.vocab.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  for (const char byte : word) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id >= 0) symbols.push_back(id);
  }
  merges_.apply(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

const Bpe::Token& Bpe::known_token(std::int32_t id) const {
  STOF_CHECK(contains(id), kInvalidArgument,
             "token id: expected one of the vocabulary's, below {}, got {}", num_ids(), id);
  return tokens_[static_cast<std::size_t>(id)];
}

const std::string& Bpe::token(std::int32_t id) const { return *known_token(id).spelled; }
const std::string& Bpe::bytes(std::int32_t id) const { return known_token(id).bytes; }
bool Bpe::is_special(std::int32_t id) const { return known_token(id).special; }

std::int32_t Bpe::find(const std::string& token) const {
  const auto known = spec_.vocab.find(token);
  if (known != spec_.vocab.end()) return known->second;
  for (const AddedToken& added : spec_.added)
    if (added.content == token) return added.id;
  return -1;
}

std::string Bpe::decode(std::span<const std::int32_t> ids) const {
  Utf8Stream stream;
  std::string text;
  for (const std::int32_t id : ids)
    if (!is_special(id)) text += stream.push(bytes(id));
  return text + stream.finish();
}

}  // namespace stof::model
