#include "model/subword.h"

#include "core/check.h"
#include "core/text.h"

namespace stof::model {

std::string TokenStream::push(std::int32_t id) {
  if (tokenizer_.is_special(id)) return {};
  std::string_view bytes = tokenizer_.bytes(id);
  while (blanks_ > 0 && !bytes.empty()) {
    if (bytes[0] != ' ') {
      blanks_ = 0;
    } else {
      bytes.remove_prefix(1);
      --blanks_;
    }
  }
  return stream_.push(bytes);
}

TokenTable::TokenTable(std::size_t expected, std::string where)
    : limit_(2 * expected + 4096), where_(std::move(where)) {
  tokens_.reserve(expected);
  ids_.reserve(expected);
}

void TokenTable::add(const std::string& spelled, std::int32_t id, std::string bytes) {
  const auto index = static_cast<std::size_t>(id);
  STOF_CHECK(id >= 0 && index < limit_, kCorrupt, "{}: token {}: expected an id below {}, got {}",
             where_, quote_text(spelled), limit_, id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  Token& token = tokens_[index];
  STOF_CHECK(!token.exists, kCorrupt, "{}: id {}: expected one token, got {} as well", where_, id,
             quote_text(spelled));
  token = {spelled, std::move(bytes), true, false};
  ids_.insert_or_assign(spelled, id);
}

void TokenTable::check_frame(const TextFrame& frame) const {
  for (const auto* ids : {&frame.before, &frame.after})
    for (const std::int32_t id : *ids)
      STOF_CHECK(contains(id), kCorrupt, "{}: post_processor: expected the id of a token, got {}",
                 where_, id);
}

const TokenTable::Token& TokenTable::at(std::int32_t id) const {
  STOF_CHECK(contains(id), kInvalidArgument,
             "token id: expected one of the vocabulary's, below {}, got {}", size(), id);
  return tokens_[static_cast<std::size_t>(id)];
}

std::int32_t TokenTable::find(const std::string& spelled) const {
  const auto found = ids_.find(spelled);
  return found == ids_.end() ? -1 : found->second;
}

std::string marks_to_blanks(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool mark = text.substr(at).starts_with(kBlankMark);
    out += mark ? ' ' : text[at];
    at += mark ? kBlankMark.size() : 1;
  }
  return out;
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace stof::model
