#include "expr/lexer.h"

#include <fmt/core.h>

#include "core/text.h"

namespace stof::expr {
namespace {

// <cctype> depends on the locale; the grammar does not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_letter(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

constexpr std::string_view kLongSigns[] = {"**", "//", "<<", ">>", "<=", ">=", "==", "!="};
constexpr std::string_view kSignCharacters = "()[],+-*/%<>&|^~";

/// Everything that could belong to a number, so that "4k" and "1.2.3" are named as a whole.
std::size_t end_of_number(std::string_view text, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < text.size() && (is_name(text[end]) || text[end] == '.' ||
                               ((text[end] == '-' || text[end] == '+') &&
                                (text[end - 1] == 'e' || text[end - 1] == 'E'))))
    ++end;
  return end;
}

[[noreturn]] void refuse_character(std::string_view text, std::size_t at) {
  if (text[at] == '=') throw Fault{at, "unexpected \"=\"; write == to compare"};
  if (text[at] == '!') throw Fault{at, "unexpected \"!\"; write ~ for not"};
  throw Fault{at, "unexpected character; expected a name, a number or an operator"};
}

}  // namespace

std::string Token::describe() const {
  if (kind == TokenKind::kEnd) return "the end of the text";
  if (kind == TokenKind::kInteger || kind == TokenKind::kReal)
    return std::string(text.substr(0, 40));
  return quote_text(text, 40);
}

Token next_token(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  Token token;
  token.offset = at;
  if (at == text.size()) return token;
  const char c = text[at];
  std::size_t end = at + 1;
  if (is_digit(c) || (c == '.' && end < text.size() && is_digit(text[end]))) {
    end = end_of_number(text, at);
    token.text = text.substr(at, end - at);
    const bool whole = token.text.find_first_not_of("0123456789") == std::string_view::npos;
    token.kind = whole ? TokenKind::kInteger : TokenKind::kReal;
    return token;
  }
  if (is_letter(c)) {
    while (end < text.size() && is_name(text[end])) ++end;
    token.kind = TokenKind::kName;
  } else {
    token.kind = TokenKind::kSign;
    for (const std::string_view sign : kLongSigns)
      if (text.substr(at, 2) == sign) end = at + 2;
    if (end == at + 1 && kSignCharacters.find(c) == std::string_view::npos)
      refuse_character(text, at);
  }
  token.text = text.substr(at, end - at);
  return token;
}

}  // namespace stof::expr
