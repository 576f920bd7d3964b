// Recursive descent over the grammar of docs/masks.md.

#include <fmt/core.h>

#include "core/caret.h"
#include "core/check.h"
#include "mask/lexer.h"
#include "mask/nesting.h"
#include "mask/registry.h"
#include "stof/mask.h"

namespace stof::mask {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::optional<std::string> base_dir)
      : lexer_(text), base_dir_(std::move(base_dir)), token_(lexer_.next()) {}

  Mask parse_all() {
    Mask mask = parse_or();
    if (token_.kind != TokenKind::kEnd) {
      fail(token_.offset,
           fmt::format("expected &, | or the end of the text, got {}", token_.describe()));
    }
    check_nesting(mask);
    return mask;
  }

 private:
  /// Counts one level while in scope.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxSyntaxDepth) {
        parser_.fail(parser_.token_.offset,
                     fmt::format("nested deeper than {} levels", kMaxSyntaxDepth));
      }
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(std::size_t offset, std::string_view message,
                         ErrorCode code = ErrorCode::kInvalidArgument) {
    throw Error(code, message_with_caret("mask", message, lexer_.text(), offset));
  }

  Token take() {
    Token taken = token_;
    token_ = lexer_.next();
    return taken;
  }

  bool take_sign(char sign) {
    if (!token_.is_sign(sign)) return false;
    take();
    return true;
  }

  Mask parse_or() { return parse_chain('|', &Parser::parse_and); }
  Mask parse_and() { return parse_chain('&', &Parser::parse_unary); }

  /// operand { sign operand }. Joined pairwise like a tree: a chain of n costs n log n.
  Mask parse_chain(char sign, Mask (Parser::*operand)()) {
    std::vector<Mask> operands{(this->*operand)()};
    while (take_sign(sign)) {
      if (token_.is_sign(sign)) {
        fail(token_.offset, fmt::format("expected a mask, got a second {0}; write one {0}", sign));
      }
      operands.push_back((this->*operand)());
    }
    while (operands.size() > 1) {
      std::vector<Mask> joined;
      for (std::size_t i = 0; i + 1 < operands.size(); i += 2) {
        joined.push_back(join(sign, operands[i], operands[i + 1]));
      }
      if (operands.size() % 2 == 1) joined.push_back(operands.back());
      operands = std::move(joined);
    }
    return operands.front();
  }

  /// Parts whose batch or head extents differ are refused by the operators.
  Mask join(char sign, const Mask& a, const Mask& b) {
    try {
      return sign == '&' ? a & b : a | b;
    } catch (const Error& error) {
      fail(token_.offset, error.what(), error.code());
    }
  }

  Mask parse_unary() {
    const Level level(*this);
    if (take_sign('~')) return ~parse_unary();
    if (token_.is_sign('(')) {
      const Token open = take();
      Mask mask = parse_or();
      if (!take_sign(')')) {
        fail(token_.offset,
             fmt::format("expected \")\" to close the \"(\" {} characters before, got {}",
                         token_.offset - open.offset, token_.describe()));
      }
      return mask;
    }
    if (token_.kind != TokenKind::kName) {
      fail(token_.offset, fmt::format("expected a mask, got {}", token_.describe()));
    }
    return parse_call();
  }

  Mask parse_call() {
    const Token name = take();
    const Function* function = find_function(name.text);
    if (function == nullptr) fail(name.offset, unknown_function_message(name.text));
    std::vector<GivenArgument> given;
    if (take_sign('(')) {
      given = parse_arguments(*function);
    } else if (function->needs_arguments()) {
      fail(name.offset,
           fmt::format("{} needs arguments: expected {}", function->name, function->signature()));
    }
    const auto result = build(*function, given, name.offset);
    if (const auto* mask = std::get_if<Mask>(&result)) return *mask;
    const CallFault& fault = std::get<CallFault>(result);
    if (!fault.given.has_value()) fail(name.offset, fault.message);
    const GivenArgument& argument = given[*fault.given];
    const Literal* literal = &argument.literal;
    for (std::size_t i : fault.trail) literal = &std::get<Literal::List>(literal->value)[i];
    fail(literal->offset, fmt::format("{}: {}: {}", function->name,
                                      function->params[argument.param].name, fault.message));
  }

  /// call() with a caret under the name for what the builder refuses.
  std::variant<Mask, CallFault> build(const Function& function,
                                      const std::vector<GivenArgument>& given, std::size_t offset) {
    try {
      return call(function, given, base_dir_);
    } catch (const Error& error) {
      fail(offset, error.what(), error.code());
    }
  }

  /// What follows "name(", to and including ")".
  std::vector<GivenArgument> parse_arguments(const Function& function) {
    std::vector<GivenArgument> given;
    if (take_sign(')')) return given;
    bool keywords = false;
    do {
      const std::size_t begin = token_.offset;
      std::size_t param = given.size();
      if (at_keyword()) {
        keywords = true;
        const Token name = take();
        take();
        const Param* found = function.find_param(name.text);
        if (found == nullptr) fail(begin, unknown_param_message(function, name.text));
        param = static_cast<std::size_t>(found - function.params.data());
      } else if (keywords) {
        fail(begin, fmt::format("{}: expected name=value, as the argument before, got {}",
                                function.name, token_.describe()));
      } else if (param >= function.params.size()) {
        fail(begin, fmt::format("{}: expected at most {} arguments: {}", function.name,
                                function.params.size(), function.signature()));
      }
      given.push_back({param, parse_value()});
    } while (take_sign(','));
    if (!take_sign(')')) {
      fail(token_.offset,
           fmt::format("{}: expected \",\" or \")\", got {}", function.name, token_.describe()));
    }
    return given;
  }

  bool at_keyword() {
    if (token_.kind != TokenKind::kName) return false;
    Lexer ahead = lexer_;
    return ahead.next().is_sign('=');
  }

  /// A number, a string, true, false, a list of values, or a mask.
  Literal parse_value() {
    Literal literal;
    literal.offset = token_.offset;
    if (token_.kind == TokenKind::kNumber) {
      std::visit([&](auto number) { literal.value = number; }, take().number);
    } else if (token_.kind == TokenKind::kString) {
      literal.value = std::string(take().text);
    } else if (token_.text == "true" || token_.text == "false") {
      literal.value = take().text == "true";
    } else if (token_.is_sign('[')) {
      literal.value = parse_list();
    } else if (token_.kind == TokenKind::kName || token_.is_sign('(') || token_.is_sign('~')) {
      literal.value = parse_or();
    } else {
      fail(token_.offset, fmt::format("expected a value, got {}", token_.describe()));
    }
    return literal;
  }

  Literal::List parse_list() {
    const Level level(*this);
    take();
    Literal::List list;
    if (take_sign(']')) return list;
    do {
      list.push_back(parse_value());
    } while (take_sign(','));
    if (!take_sign(']')) {
      fail(token_.offset, fmt::format("expected \",\" or \"]\", got {}", token_.describe()));
    }
    return list;
  }

  Lexer lexer_;
  std::optional<std::string> base_dir_;
  Token token_;
  int depth_ = 0;
};

}  // namespace

Mask parse(std::string_view text, const std::string& base_dir) {
  return Parser(text, base_dir).parse_all();
}

}  // namespace stof::mask
