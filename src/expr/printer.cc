// Canonical text of an expression.

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "expr/expression.h"
#include "expr/words.h"

namespace stof::expr {
namespace {

class Printer {
 public:
  explicit Printer(const Expression& expression) : expression_(expression) {}

  std::string print() {
    append(static_cast<std::int32_t>(expression_.nodes().size()) - 1, kComparison);
    return std::move(out_);
  }

 private:
  const Node& at(std::int32_t node) const {
    return expression_.nodes()[static_cast<std::size_t>(node)];
  }

  static int precedence_of(const Node& node) {
    if (node.op == Op::kConstant) {
      const bool sign = node.type == Type::kFloat ? std::signbit(node.real) : node.integer < 0;
      return node.type == Type::kInt && node.integer == std::numeric_limits<std::int64_t>::min()
                 ? kSum
             : sign ? kUnary
                    : kPrimary;
    }
    if (node.op == Op::kNegate || node.op == Op::kNot) return kUnary;
    const Sign* sign = find_sign(node.op);
    return sign == nullptr ? kPrimary : sign->precedence;
  }

  /// In parentheses where it binds less tightly than `least`.
  void append(std::int32_t index, int least) {
    const Node& node = at(index);
    const bool enclosed = precedence_of(node) < least;
    if (enclosed) out_ += '(';
    append_bare(node);
    if (enclosed) out_ += ')';
  }

  void append_bare(const Node& node) {
    if (node.op == Op::kConstant) return append_constant(node);
    if (node.op == Op::kTable) return append_table(node);
    if (node.op == Op::kNegate || node.op == Op::kNot) {
      out_ += node.op == Op::kNegate ? '-' : '~';
      return append(node.args[0], kUnary);
    }
    if (const Sign* sign = find_sign(node.op)) return append_binary(node, *sign);
    out_ += name_of(node.op);
    if (node.num_args > 0) append_list(node, '(', ')');
  }

  // A chain of left operands may be long: only the right ones are nested calls... of at most the
  // height that the builder allows.
  void append_binary(const Node& node, const Sign& sign) {
    const int p = sign.precedence;
    // Comparisons don't chain; ** groups to the right, and takes a sign only on its right.
    const bool left_groups = p != kComparison && p != kPower;
    append(node.args[0], left_groups ? p : p + 1);
    out_ += fmt::format(" {} ", sign.text);
    append(node.args[1], p == kPower ? kUnary : p + 1);
  }

  void append_list(const Node& node, char open, char close) {
    out_ += open;
    const char* separator = "";
    for (const std::int32_t operand : node.operands()) {
      out_ += separator;
      append(operand, kComparison);
      separator = ", ";
    }
    out_ += close;
  }

  void append_table(const Node& node) {
    out_ += expression_.tables()[static_cast<std::size_t>(node.integer)].name;
    if (node.num_args > 0) append_list(node, '[', ']');
  }

  void append_constant(const Node& node) {
    if (node.type == Type::kBool) {
      out_ += node.integer != 0 ? "True" : "False";
    } else if (node.type == Type::kInt) {
      // The lowest integer has no literal.
      out_ += node.integer == std::numeric_limits<std::int64_t>::min()
                  ? fmt::format("{} - 1", node.integer + 1)
                  : fmt::format("{}", node.integer);
    } else {
      const std::string text = fmt::format("{}", node.real);
      out_ += text;
      if (text.find_first_not_of("-0123456789") == std::string::npos) out_ += ".0";
    }
  }

  const Expression& expression_;
  std::string out_;
};

}  // namespace

std::string Expression::to_text() const { return Printer(*this).print(); }

}  // namespace stof::expr
