#include "model/wordpiece.h"

#include <algorithm>

#include "core/check.h"
#include "model/unicode.h"

namespace stof::model {

WordPiece::WordPiece(WordPieceSpec spec, const std::string& where) : spec_(std::move(spec)) {
  for (const auto& [content, id] : spec_.vocab) {
    add_token(content, id, where);
    longest_token_ = std::max(longest_token_, content.size());
    starts_.emplace(content, id);
    if (content.starts_with(spec_.continuing_prefix))
      continuations_.emplace(std::string_view(content).substr(spec_.continuing_prefix.size()), id);
  }
  const auto unk = spec_.vocab.find(spec_.unk_token);
  STOF_CHECK(unk != spec_.vocab.end(), kCorrupt,
             "{}: unknown token: expected \"{}\" in the vocabulary of {} tokens, got none", where,
             spec_.unk_token, spec_.vocab.size());
  unk_id_ = unk->second;
  for (const AddedToken& token : spec_.added) {
    add_token(token.content, token.id, where);
    const std::u32string content = decode_utf8(token.content, where);
    if (token.normalized) {
      normalized_added_.add(spec_.normalizer(content), &token);
    } else {
      raw_added_.add(content, &token);
    }
  }
  for (const auto* ids : {&spec_.frame.before, &spec_.frame.after})
    for (const std::int32_t id : *ids)
      STOF_CHECK(tokens_.contains(id), kCorrupt,
                 "{}: post_processor: expected the id of a token, got {}", where, id);
}

void WordPiece::add_token(const std::string& content, std::int32_t id, const std::string& where) {
  const auto [known, is_new] = tokens_.emplace(id, &content);
  STOF_CHECK(is_new || *known->second == content, kCorrupt,
             "{}: id {}: expected one token, got \"{}\" and \"{}\"", where, id, *known->second,
             content);
  num_ids_ = std::max<std::int64_t>(num_ids_, id + std::int64_t{1});
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text, std::int64_t max_tokens,
                                            bool* truncated) const {
  STOF_CHECK(max_tokens == 0 || max_tokens >= num_special(), kInvalidArgument,
             "max_tokens: expected 0 (no limit) or at least {}, the number of special tokens, got "
             "{}",
             num_special(), max_tokens);
  const std::size_t room =
      max_tokens == 0 ? SIZE_MAX - 1 : static_cast<std::size_t>(max_tokens - num_special());
  std::vector<std::int32_t> ids = spec_.frame.before;
  const std::size_t limit = spec_.frame.before.size() + room;
  const auto add_token = [&](const AddedToken& token) { ids.push_back(token.id); };
  raw_added_.split(
      decode_utf8(text, "text"),
      [&](std::u32string_view piece) {
        if (ids.size() > limit) return;  // what follows is cut anyway
        const std::u32string normalized = spec_.normalizer(piece);
        normalized_added_.split(
            normalized, [&](std::u32string_view words) { encode_words(words, limit, ids); },
            add_token);
      },
      add_token);
  const bool cut = ids.size() > limit;
  if (cut) ids.resize(limit);
  if (truncated != nullptr) *truncated = cut;
  ids.insert(ids.end(), spec_.frame.after.begin(), spec_.frame.after.end());
  return ids;
}

void WordPiece::encode_words(std::u32string_view normalized, std::size_t limit,
                             std::vector<std::int32_t>& ids) const {
  for (const std::u32string_view word : split_words(normalized)) {
    if (ids.size() > limit) return;
    encode_word(word, ids);
  }
}

void WordPiece::encode_word(std::u32string_view word, std::vector<std::int32_t>& ids) const {
  if (static_cast<std::int64_t>(word.size()) > spec_.max_chars_per_word) {
    ids.push_back(unk_id_);
    return;
  }
  const std::string bytes = encode_utf8(word);
  const std::size_t first_id = ids.size();
  const auto is_boundary = [&](std::size_t i) {
    return i == bytes.size() || (static_cast<unsigned char>(bytes[i]) & 0xC0) != 0x80;
  };
  // Greedy: the longest token that starts here. No match anywhere makes the whole word unknown.
  for (std::size_t begin = 0; begin < bytes.size();) {
    const auto& pieces = begin == 0 ? starts_ : continuations_;
    std::size_t end = std::min(bytes.size(), begin + longest_token_);
    auto found = pieces.end();
    for (; end > begin; --end) {
      if (!is_boundary(end)) continue;
      found = pieces.find(std::string_view(bytes).substr(begin, end - begin));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) {
      ids.resize(first_id);
      ids.push_back(unk_id_);
      return;
    }
    ids.push_back(found->second);
    begin = end;
  }
}

std::int32_t WordPiece::find(const std::string& token) const {
  const auto known = spec_.vocab.find(token);
  if (known != spec_.vocab.end()) return known->second;
  for (const AddedToken& added : spec_.added)
    if (added.content == token) return added.id;
  return -1;
}

const std::string& WordPiece::token(std::int32_t id) const {
  const auto found = tokens_.find(id);
  STOF_CHECK(found != tokens_.end(), kInvalidArgument,
             "token id: expected one of the vocabulary's, below {}, got {}", num_ids_, id);
  return *found->second;
}

}  // namespace stof::model
