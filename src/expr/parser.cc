// Precedence climbing over the grammar of docs/masks.md.

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <system_error>

#include "core/caret.h"
#include "core/check.h"
#include "core/text.h"
#include "expr/builder.h"
#include "expr/lexer.h"
#include "expr/words.h"

namespace stof::expr {
namespace {

/// Parentheses, calls, brackets and signs inside one another. People stay below 10; what is printed
/// needs at most one level an operation, and more than this is refused.
constexpr int kMaxDepth = 250;
constexpr std::size_t kMaxBytes = 1 << 16;

class Parser {
 public:
  Parser(std::string_view text, const std::vector<TableDecl>& tables, Builder& builder)
      : text_(text), tables_(tables), builder_(builder) {}

  std::int32_t parse_all() {
    if (text_.size() > kMaxBytes)
      throw Fault{kMaxBytes, fmt::format("expected at most {} bytes of text", kMaxBytes)};
    token_ = next_token(text_, 0);
    const std::int32_t root = parse_comparison();
    if (token_.kind != TokenKind::kEnd)
      fail(token_,
           fmt::format("expected an operator or the end of the text, got {}", token_.describe()));
    return root;
  }

 private:
  [[noreturn]] static void fail(const Token& token, std::string message) {
    throw Fault{token.offset, std::move(message)};
  }

  Token take() {
    const Token taken = token_;
    token_ = next_token(text_, taken.offset + taken.text.size());
    return taken;
  }

  bool take(std::string_view sign) {
    if (!token_.is(sign)) return false;
    take();
    return true;
  }

  /// What `make` gives, its refusal pointing at `token`.
  template <class Make>
  std::int32_t build(const Token& token, Make&& make) {
    try {
      return make();
    } catch (const TypeFault& fault) {
      fail(token, fault.message);
    }
  }

  std::int32_t parse_comparison() {
    const std::int32_t a = parse_binary(kOr);
    const Sign* sign = binary_sign();
    if (sign == nullptr) return a;
    const Token token = take();
    const std::int32_t b = parse_binary(kOr);
    if (binary_sign() != nullptr)
      fail(token_,
           fmt::format("expected the end of the comparison, got {}; write (a < b) & (b < c)",
                       token_.describe()));
    return build(token, [&] { return combine(*sign, a, b); });
  }

  std::int32_t parse_binary(int precedence) {
    std::int32_t a = parse_unary();
    for (const Sign* sign = binary_sign();
         sign != nullptr && sign->precedence >= precedence && sign->precedence <= kProduct;
         sign = binary_sign()) {
      const Token token = take();
      if (token_.is(token.text) && (token.text == "&" || token.text == "|"))
        fail(token_, fmt::format("expected a value, got a second {0}; write one {0}", token.text));
      const std::int32_t b = parse_binary(sign->precedence + 1);
      a = build(token, [&] { return combine(*sign, a, b); });
    }
    return a;
  }

  const Sign* binary_sign() const {
    if (token_.kind == TokenKind::kName &&
        (token_.text == "and" || token_.text == "or" || token_.text == "not"))
      fail(token_, fmt::format("unexpected {}; write & | ~, with parentheses around comparisons",
                               quote_text(token_.text)));
    return token_.kind == TokenKind::kSign ? find_sign(token_.text) : nullptr;
  }

  std::int32_t combine(const Sign& sign, std::int32_t a, std::int32_t b) {
    return sign.swapped ? builder_.binary(sign.op, b, a) : builder_.binary(sign.op, a, b);
  }

  std::int32_t parse_unary() {
    if (++depth_ > kMaxDepth) fail(token_, fmt::format("nested deeper than {} levels", kMaxDepth));
    std::int32_t result = 0;
    if (token_.is("-") || token_.is("~")) {
      const Token sign = take();
      const std::int32_t a = parse_unary();
      const Op op = sign.text == "-" ? Op::kNegate : Op::kNot;
      result = build(sign, [&] { return builder_.unary(op, a); });
    } else if (take("+")) {
      result = parse_unary();
    } else {
      result = parse_power();
    }
    --depth_;
    return result;
  }

  std::int32_t parse_power() {
    const std::int32_t base = parse_primary();
    if (!token_.is("**")) return base;
    const Token sign = take();
    const std::int32_t exponent = parse_unary();
    return build(sign, [&] { return builder_.binary(Op::kPow, base, exponent); });
  }

  std::int32_t parse_primary() {
    switch (token_.kind) {
      case TokenKind::kInteger:
        return parse_integer(take());
      case TokenKind::kReal:
        return parse_real(take());
      case TokenKind::kName:
        binary_sign();  // "not" is no name
        return parse_name(take());
      default:
        break;
    }
    const Token open = token_;
    if (!take("(")) fail(token_, fmt::format("expected a value, got {}", token_.describe()));
    const std::int32_t inner = parse_comparison();
    if (!take(")"))
      fail(token_, fmt::format("expected \")\" to close the \"(\" {} characters before, got {}",
                               token_.offset - open.offset, token_.describe()));
    return inner;
  }

  std::int32_t parse_integer(const Token& token) {
    std::int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      fail(token, fmt::format("number out of range: expected at most {}, got {}",
                              std::numeric_limits<std::int64_t>::max(), token.describe()));
    return builder_.integer(value);
  }

  std::int32_t parse_real(const Token& token) {
    float value = 0;
    const char* end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, value);
    if (stop != end || error == std::errc::invalid_argument)
      fail(token,
           fmt::format("expected a number such as 256 or 0.5, got {}", quote_text(token.text, 40)));
    if (error != std::errc())
      fail(token, fmt::format("number out of the range of float32: {}", token.describe()));
    return build(token, [&] { return builder_.real(value); });
  }

  std::int32_t parse_name(const Token& name) {
    if (name.text == "True" || name.text == "False") return builder_.boolean(name.text == "True");
    if (name.text == "inf")
      return build(name, [&] { return builder_.real(std::numeric_limits<float>::infinity()); });
    if (const auto variable = variable_of(name.text))
      return build(name, [&] { return builder_.variable(*variable); });
    if (const FunctionWord* function = find_function(name.text)) return parse_call(name, *function);
    for (std::size_t i = 0; i < tables_.size(); ++i)
      if (tables_[i].name == name.text) return parse_table(name, i);
    const bool reads = token_.is("[");
    std::vector<std::string_view> known = reads ? std::vector<std::string_view>() : words();
    for (const TableDecl& table : tables_) known.push_back(table.name);
    std::string hint = near_name_hint(name.text, known);
    if (hint.empty())
      hint = reads ? "; a table of that name must be given beside the text"
                   : "; expected b, h, q, k, a function or a table that is given";
    fail(name, fmt::format("unknown name {}{}", quote_text(name.text, 40), hint));
  }

  std::vector<std::int32_t> parse_list(std::string_view close, std::string_view what) {
    std::vector<std::int32_t> values;
    do {
      values.push_back(parse_comparison());
    } while (take(","));
    if (!take(close))
      fail(token_,
           fmt::format("{}: expected \",\" or \"{}\", got {}", what, close, token_.describe()));
    return values;
  }

  std::int32_t parse_table(const Token& name, std::size_t table) {
    std::vector<std::int32_t> indices;
    if (take("[")) indices = parse_list("]", name.text);
    return build(name, [&] { return builder_.table(table, indices); });
  }

  std::int32_t parse_call(const Token& name, const FunctionWord& function) {
    if (!take("("))
      fail(token_, fmt::format("{}: expected \"(\", got {}", function.name, token_.describe()));
    const std::vector<std::int32_t> args = parse_list(")", function.name);
    const auto count = static_cast<int>(args.size());
    if (count < function.min_args || count > function.max_args)
      fail(name, fmt::format("{}: expected {}{} argument{}, got {}", function.name,
                             function.min_args == function.max_args ? "" : "at least ",
                             function.min_args, function.min_args == 1 ? "" : "s", count));
    return build(name, [&] {
      if (function.op == Op::kWhere) return builder_.where(args[0], args[1], args[2]);
      if (function.max_args == 1) return builder_.unary(function.op, args[0]);
      if (function.op == Op::kPow) return builder_.binary(Op::kPow, args[0], args[1]);
      std::int32_t folded = args[0];
      for (std::size_t i = 1; i < args.size(); ++i)
        folded = builder_.binary(function.op, folded, args[i]);
      return folded;
    });
  }

  std::string_view text_;
  const std::vector<TableDecl>& tables_;
  Builder& builder_;
  Token token_;
  int depth_ = 0;
};

bool is_name(std::string_view text) {
  try {
    return next_token(text, 0).kind == TokenKind::kName && next_token(text, 0).text == text;
  } catch (const Fault&) {
    return false;
  }
}

void check_tables(std::string_view subject, const std::vector<TableDecl>& tables, bool floats) {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const TableDecl& table = tables[i];
    STOF_CHECK(is_name(table.name), kInvalidArgument,
               "{}: tables[{}]: expected a name of letters, digits and _, got {}", subject, i,
               quote_text(table.name, 40));
    STOF_CHECK(!is_word(table.name), kInvalidArgument,
               "{}: table {}: the name is a word of the language; choose another", subject,
               table.name);
    for (std::size_t j = 0; j < i; ++j)
      STOF_CHECK(tables[j].name != table.name, kInvalidArgument,
                 "{}: two tables have the name {}; expected different names", subject, table.name);
    const DType t = table.dtype;
    const bool whole = t == DType::kBool || t == DType::kInt32 || t == DType::kInt64;
    const bool real = t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16;
    STOF_CHECK(whole || (floats && real), kInvalidArgument,
               "{}: table {}: expected bool, int32, int64{}, got {}", subject, table.name,
               floats ? ", float32, float16 or bfloat16" : "", to_string(t));
    num_elements(table.shape);  // refuses extents below 0
  }
}

Expression parse(std::string_view subject, std::string_view text, std::vector<TableDecl> tables,
                 bool floats) {
  check_tables(subject, tables, floats);
  const auto shared = std::make_shared<const std::vector<TableDecl>>(std::move(tables));
  Builder builder(shared, floats);
  try {
    const std::int32_t root = Parser(text, *shared, builder).parse_all();
    if (floats) return builder.finish(builder.to_float(root));
    if (builder.type(root) != Type::kBool)
      throw Fault{0, fmt::format("expected a boolean result, got {}; compare it, as in x != 0",
                                 describe(builder.type(root)))};
    return builder.finish(root);
  } catch (const Fault& fault) {
    throw Error(ErrorCode::kInvalidArgument,
                message_with_caret(subject, fault.message, text, fault.offset));
  } catch (const TypeFault& fault) {
    throw Error(ErrorCode::kInvalidArgument,
                message_with_caret(subject, fault.message, text, text.size()));
  }
}

}  // namespace

Expression parse_predicate(std::string_view text, std::vector<TableDecl> tables) {
  return parse("predicate", text, std::move(tables), false);
}

Expression parse_score(std::string_view text, std::vector<TableDecl> tables) {
  return parse("score_mod", text, std::move(tables), true);
}

}  // namespace stof::expr
