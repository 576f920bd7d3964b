#pragma once
// Lexer: cuts expression text into names, numbers and signs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stof::expr {

enum class TokenKind : std::uint8_t { kName, kInteger, kReal, kSign, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t offset = 0;  ///< of its first byte
  std::string_view text;   ///< as written

  bool is(std::string_view sign) const { return kind == TokenKind::kSign && text == sign; }
  /// For messages: "the end of the text", "\"foo\"", "2.5".
  std::string describe() const;
};

/// What is wrong at a byte of the text.
struct Fault {
  std::size_t offset;
  std::string message;
};

/// The token at or after byte `at`. Throws Fault.
Token next_token(std::string_view text, std::size_t at);

}  // namespace stof::expr
