#include "mask/lexer.h"

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <system_error>

#include "core/caret.h"
#include "core/check.h"
#include "core/text.h"

namespace stof::mask {
namespace {

// <cctype> depends on the locale; the grammar does not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr std::string_view kSigns = "()[],=&|~";

}  // namespace

std::string Token::describe() const {
  if (kind == TokenKind::kEnd) return "the end of the text";
  if (kind == TokenKind::kNumber) return std::string(text.substr(0, 40));
  if (kind == TokenKind::kString) return "the string " + quote_text(text);
  return quote_text(text);
}

Token Lexer::next() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  const std::size_t begin = at_;
  Token token;
  token.offset = begin;
  if (begin == text_.size()) return token;
  const char c = text_[begin];
  if (is_digit(c) || c == '-' || c == '+' || c == '.') return number(begin);
  if (c == '"') return string(begin);
  if (is_name_start(c)) {
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    token.kind = TokenKind::kName;
  } else if (kSigns.find(c) != std::string_view::npos) {
    ++at_;
    token.kind = TokenKind::kSign;
  } else {
    throw_error(ErrorCode::kInvalidArgument, "{}",
                message_with_caret("mask",
                                   c == '!' ? "unexpected \"!\"; write ~ for not"
                                            : "unexpected character; expected a mask name, a "
                                              "number, a string or one of ( ) [ ] , = & | ~",
                                   text_, begin));
  }
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

Token Lexer::number(std::size_t begin) {
  // Take everything that could belong to a number, so that "4k" and "1.2.3" are named as a whole.
  std::size_t end = begin + 1;
  while (end < text_.size() && (is_name(text_[end]) || text_[end] == '.' ||
                                ((text_[end] == '-' || text_[end] == '+') &&
                                 (text_[end - 1] == 'e' || text_[end - 1] == 'E')))) {
    ++end;
  }
  at_ = end;
  Token token;
  token.kind = TokenKind::kNumber;
  token.offset = begin;
  token.text = text_.substr(begin, end - begin);
  const char* first = token.text.data();
  const char* last = first + token.text.size();

  const auto parse_as = [&](auto value) {
    const auto [stop, error] = std::from_chars(first, last, value);
    if (stop != last || error == std::errc::invalid_argument) return std::errc::invalid_argument;
    if (error == std::errc()) token.number = value;
    return error;
  };
  std::errc error = parse_as(std::int64_t{});
  if (error == std::errc::result_out_of_range) error = parse_as(std::uint64_t{});
  // from_chars also reads "inf" and "nan", which no argument takes; a sign never leads to them
  // here unless letters follow it.
  const bool has_digit = token.text.find_first_of("0123456789") != std::string_view::npos;
  if (error == std::errc::invalid_argument && has_digit) error = parse_as(double{});
  if (error == std::errc::result_out_of_range) {
    throw_error(
        ErrorCode::kInvalidArgument, "{}",
        message_with_caret("mask",
                           fmt::format("number out of range: expected at most {}, got {}",
                                       std::numeric_limits<std::uint64_t>::max(), token.describe()),
                           text_, begin));
  }
  if (error != std::errc()) {
    throw_error(ErrorCode::kInvalidArgument, "{}",
                message_with_caret("mask",
                                   fmt::format("expected a number such as 256, -1 or 0.5, got {}",
                                               quote_text(token.text)),
                                   text_, begin));
  }
  return token;
}

Token Lexer::string(std::size_t begin) {
  // File names and bit strings need no escapes: a string ends at the next quote.
  const std::size_t end = text_.find_first_of("\"\n", begin + 1);
  if (end == std::string_view::npos || text_[end] == '\n') {
    throw_error(ErrorCode::kInvalidArgument, "{}",
                message_with_caret("mask", "string without a closing \"", text_, begin));
  }
  at_ = end + 1;
  Token token;
  token.kind = TokenKind::kString;
  token.offset = begin;
  token.text = text_.substr(begin + 1, end - begin - 1);
  return token;
}

}  // namespace stof::mask
