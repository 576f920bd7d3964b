#include "model/metaspace.h"

#include <algorithm>

#include "core/check.h"
#include "core/text.h"
#include "model/unicode.h"

namespace stof::model {
namespace {

using Kind = NormalizerStep::Kind;

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    out += text.substr(at, found - at);
    if (found < text.size()) out += to;
    at = found + from.size();
  }
  return out;
}

std::string runs_replaced(std::string_view text, const std::string& to) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end >= at + 2) {
      out += to;
      at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string stripped(std::string_view text, bool left, bool right) {
  std::u32string letters = decode_utf8(text, "normalised text");
  std::size_t begin = 0, end = letters.size();
  while (left && begin < end && is_whitespace(letters[begin])) ++begin;
  while (right && end > begin && is_whitespace(letters[end - 1])) --end;
  return encode_utf8(std::u32string_view(letters).substr(begin, end - begin));
}

std::string apply(const NormalizerStep& step, std::string text) {
  switch (step.kind) {
    case Kind::kCharsmap:
      return step.charsmap->normalize(text);
    case Kind::kReplace:
      return replaced(text, step.from, step.to);
    case Kind::kReplaceRun:
      return runs_replaced(text, step.to);
    case Kind::kPrepend:
      return text.empty() ? text : step.to + text;
    case Kind::kStrip:
      return stripped(text, step.left, step.right);
  }
  return text;
}

std::size_t num_tokens(const MetaspaceSpec& spec) {
  return spec.pieces.size() + spec.vocab.size() + spec.added.size();
}

}  // namespace

MetaspaceTokenizer::MetaspaceTokenizer(MetaspaceSpec spec, const std::string& where)
    : TableTokenizer(num_tokens(spec), where), spec_(std::move(spec)) {
  const auto bytes_of = [this](const std::string& token) {
    const int byte = spec_.decode_bytes ? byte_of_token(token) : -1;
    return byte < 0 ? marks_to_blanks(token) : std::string(1, static_cast<char>(byte));
  };
  if (!spec_.pieces.empty()) {
    for (std::size_t i = 0; i < spec_.pieces.size(); ++i) {
      const std::string& piece = spec_.pieces[i].first;
      tokens_.add(piece, static_cast<std::int32_t>(i), bytes_of(piece));
    }
    unigram_.emplace(
        make_unigram_spec(std::move(spec_.pieces), spec_.unknown, spec_.byte_fallback, where));
  } else {
    for (const auto& [token, id] : spec_.vocab) tokens_.add(token, id, bytes_of(token));
    read_merges(where);
  }
  for (const AddedToken& token : spec_.added) {
    if (tokens_.find(token.content) < 0)
      tokens_.add(token.content, token.id, bytes_of(token.content));
    if (token.special) tokens_.mark_special(token.id);
    const std::string content = token.normalized ? normalized(token.content) : token.content;
    // What it is found as is what it stands for: with the blank that was put before it, say.
    if (token.normalized) tokens_.set_bytes(token.id, marks_to_blanks(content));
    (token.normalized ? normalized_added_ : raw_added_).add(decode_utf8(content, where), &token);
  }
  tokens_.check_frame(spec_.frame);
}

void MetaspaceTokenizer::read_merges(const std::string& where) {
  const auto id_of = [&](const std::string& token, std::string_view what) {
    const auto found = spec_.vocab.find(token);
    STOF_CHECK(found != spec_.vocab.end(), kCorrupt,
               "{}: {}: expected a token of the vocabulary, got {}", where, what,
               quote_text(token));
    return found->second;
  };
  if (!spec_.unk_token.empty()) spec_.unknown = id_of(spec_.unk_token, "unk_token");
  for (std::size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    const std::string what = fmt::format("merge {}", rank);
    merges_.add(id_of(left, what), id_of(right, what), static_cast<std::int32_t>(rank),
                id_of(left + right, what));
  }
  byte_ids_.assign(256, -1);
  for (std::size_t byte = 0; byte < 256 && spec_.byte_fallback; ++byte)
    byte_ids_[byte] = tokens_.find(byte_token(static_cast<unsigned char>(byte)));
}

std::string MetaspaceTokenizer::normalized(std::string_view text) const {
  std::string result(text);
  for (const NormalizerStep& step : spec_.normalizer) result = apply(step, std::move(result));
  return result;
}

std::vector<std::int32_t> MetaspaceTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = spec_.frame.before;
  const auto add_id = [&ids](const AddedToken& token) { ids.push_back(token.id); };
  const std::u32string letters = decode_utf8(text, "text");
  raw_added_.split(
      letters,
      [&](std::u32string_view piece) {
        const bool first = piece.data() == letters.data();
        const std::u32string clean = decode_utf8(normalized(encode_utf8(piece)), "normalised text");
        normalized_added_.split(
            clean,
            [&](std::u32string_view part) {
              encode_piece(encode_utf8(part), first && part.data() == clean.data(), ids);
            },
            add_id);
      },
      add_id);
  ids.insert(ids.end(), spec_.frame.after.begin(), spec_.frame.after.end());
  return ids;
}

/// What stands between added tokens.
void MetaspaceTokenizer::encode_piece(std::string text, bool first,
                                      std::vector<std::int32_t>& ids) const {
  const auto marked = [this](std::string word, bool begins_text) {
    if (!spec_.metaspace) return word;
    word = replaced(word, " ", std::string(kBlankMark));
    const bool wanted = spec_.metaspace->prepend == Metaspace::Prepend::kAlways ||
                        (spec_.metaspace->prepend == Metaspace::Prepend::kFirst && begins_text);
    return wanted && !word.starts_with(kBlankMark) ? std::string(kBlankMark) + word : word;
  };
  if (!spec_.whitespace_split) {
    encode_words(marked(std::move(text), first), ids);
    return;
  }
  std::u32string word;
  bool begins_text = first;
  const auto end_word = [&] {
    if (!word.empty()) encode_words(marked(encode_utf8(word), begins_text), ids);
    word.clear();
    begins_text = false;
  };
  for (const char32_t c : decode_utf8(text, "normalised text")) {
    if (is_whitespace(c)) {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
}

void MetaspaceTokenizer::encode_words(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (!spec_.metaspace || !spec_.metaspace->split) {
    encode_word(text, ids);
    return;
  }
  while (!text.empty()) {
    const std::size_t next = std::min(text.find(kBlankMark, 1), text.size());
    encode_word(text.substr(0, next), ids);
    text.remove_prefix(next);
  }
}

void MetaspaceTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (unigram_) {
    unigram_->encode(word, ids);
  } else {
    encode_bpe(word, ids);
  }
}

void MetaspaceTokenizer::encode_bpe(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (spec_.ignore_merges) {
    const auto found = spec_.vocab.find(std::string(word));
    if (found != spec_.vocab.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  int pending = 0;  // unknown characters whose token is still to come
  const auto flush = [&] {
    for (; pending > 0; --pending) symbols.push_back(static_cast<std::int32_t>(spec_.unknown));
  };
  for (std::size_t at = 0; at < word.size();) {
    std::size_t end = at + 1;
    while (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) ++end;
    const std::string character(word.substr(at, end - at));
    at = end;
    const auto found = spec_.vocab.find(character);
    if (found != spec_.vocab.end()) {
      flush();
      symbols.push_back(found->second);
      continue;
    }
    const bool all_bytes = spec_.byte_fallback && std::ranges::all_of(character, [this](char c) {
                             return byte_ids_[static_cast<unsigned char>(c)] >= 0;
                           });
    if (all_bytes) {
      for (const char c : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (spec_.unknown >= 0) {
      if (!spec_.fuse_unk) flush();
      pending = 1;
    }
  }
  flush();
  merges_.apply(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::size_t MetaspaceTokenizer::leading_blanks() const {
  // Of a first token "▁▁" both go; no text begins with more than a token has.
  return spec_.decode_drops_marks ? 1 : spec_.decode_drops_blanks;
}

std::string MetaspaceTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text, run;  // `run`: bytes one behind the other, which are characters together
  const auto end_run = [&] {
    if (is_valid_utf8(run)) {
      text += run;
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) text += "\uFFFD";
    }
    run.clear();
  };
  bool first = true;
  for (const std::int32_t id : ids) {
    const TokenTable::Token& token = tokens_.at(id);
    if (token.special) continue;
    if (spec_.decode_bytes && byte_of_token(token.spelled) >= 0) {
      run += token.bytes;
    } else {
      end_run();
      text += first && spec_.decode_drops_marks
                  ? replaced(token.spelled, std::string(kBlankMark), "")
                  : token.bytes;
    }
    first = false;
  }
  end_run();
  const std::size_t blanks = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(std::min(blanks, spec_.decode_drops_blanks));
}

}  // namespace stof::model
