#pragma once
// Lexer: cuts mask text into names, numbers, strings and signs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace stof::mask {

enum class TokenKind : std::uint8_t { kName, kNumber, kString, kSign, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t offset = 0;  ///< of its first byte
  std::string_view text;   ///< as written; of a string, what stands between the quotes
  /// Of a number: int64 where it fits, uint64 above that, double when it has a fraction or
  /// exponent.
  std::variant<std::int64_t, std::uint64_t, double> number;

  bool is_sign(char sign) const { return kind == TokenKind::kSign && text[0] == sign; }
  /// For messages: "the end", "\"foo\"", "2.5".
  std::string describe() const;
};

/// Cuts one token after the other. White space and line breaks separate tokens and mean nothing.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  /// The token after the current position. Throws InvalidArgument with a caret.
  Token next();

  std::string_view text() const { return text_; }

 private:
  Token number(std::size_t begin);
  Token string(std::size_t begin);

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace stof::mask
