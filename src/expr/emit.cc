#include "expr/emit.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "expr/value.h"
#include "expr/words.h"

namespace stof::expr {
namespace {

constexpr std::string_view kSpace = "expression::";

std::string_view element_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "const bool*";
    case DType::kInt32:
      return "const i32*";
    case DType::kInt64:
      return "const i64*";
    case DType::kFloat32:
      return "const float*";
    case DType::kFloat16:
      return "expression::HalfTable<ptx::Float16>";
    case DType::kBFloat16:
      return "expression::HalfTable<ptx::BFloat16>";
    default:
      throw_error(ErrorCode::kInternal, "a table of {}; please report it", to_string(dtype));
  }
}

class Emitter {
 public:
  Emitter(const Expression& expression, const Ranges& ranges)
      : expression_(expression),
        nodes_(expression.nodes()),
        bounds_(bounds_of(expression, ranges, unknown_tables(expression))) {}

  std::string emit() {
    emit_struct();
    const bool boolean = expression_.type() == Type::kBool;
    out_ += fmt::format(
        "__device__ __forceinline__ {} score_mod(float score, i32 b, i32 h, i32 q, i32 k, "
        "const ScoreTables& tables) {{\n",
        boolean ? "bool" : "float");
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      if (!is_literal(nodes_[i]))
        out_ += fmt::format("  const {} v{} = {};\n", type_of(at), i, right_side(at));
    }
    out_ += fmt::format("  return {};\n}}\n}}  // namespace stof\n",
                        operand(static_cast<std::int32_t>(nodes_.size()) - 1));
    return std::move(out_);
  }

 private:
  void emit_struct() {
    out_ += "namespace stof {\nstruct ScoreTables {\n";
    const auto& tables = expression_.tables();
    for (std::size_t t = 0; t < tables.size(); ++t) {
      out_ += fmt::format("  {} t{};\n", element_of(tables[t].dtype), t);
      if (tables[t].shape.rank() > 0)
        out_ += fmt::format("  i64 t{}_strides[{}];\n", t, tables[t].shape.rank());
    }
    if (tables.empty()) out_ += "  i64 unused;\n";
    out_ += "};\n";
  }

  static bool is_literal(const Node& node) { return node.op == Op::kConstant; }

  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  /// Whether an integer is kept in 32 bits.
  bool narrow(std::int32_t node) const {
    const Interval& bounds = bounds_[static_cast<std::size_t>(node)];
    return bounds.lo >= std::numeric_limits<std::int32_t>::min() &&
           bounds.hi <= std::numeric_limits<std::int32_t>::max();
  }

  std::string_view type_of(std::int32_t node) const {
    switch (at(node).type) {
      case Type::kBool:
        return "bool";
      case Type::kFloat:
        return "float";
      default:
        return narrow(node) ? "i32" : "i64";
    }
  }

  static std::string literal(const Node& node) {
    if (node.type == Type::kBool) return node.integer != 0 ? "true" : "false";
    if (node.type == Type::kInt) {
      if (node.integer == std::numeric_limits<std::int64_t>::min())
        return "(-9223372036854775807LL - 1)";
      const bool wide = node.integer > std::numeric_limits<std::int32_t>::max() ||
                        node.integer <= std::numeric_limits<std::int32_t>::min();
      const std::string text = fmt::format("{}{}", node.integer, wide ? "LL" : "");
      return node.integer < 0 ? fmt::format("({})", text) : text;
    }
    if (std::isinf(node.real)) return node.real > 0 ? "ptx::infinity()" : "(-ptx::infinity())";
    std::string text = fmt::format("{}", node.real);
    if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
    return std::signbit(node.real) ? fmt::format("({}f)", text) : text + 'f';
  }

  std::string operand(std::int32_t node) const {
    return is_literal(at(node)) ? literal(at(node)) : fmt::format("v{}", node);
  }

  /// An integer operand in the width that the operation is done in.
  std::string operand(std::int32_t node, bool wide) const {
    if (at(node).type != Type::kInt) return operand(node);
    return fmt::format("static_cast<{}>({})", wide ? "i64" : "i32", operand(node));
  }

  std::string right_side(std::int32_t index) const {
    const Node& node = at(index);
    switch (node.op) {
      case Op::kScore:
      case Op::kBatch:
      case Op::kHead:
      case Op::kQuery:
      case Op::kKey:
        return std::string(name_of(node.op));
      case Op::kTable:
        return table(index);
      case Op::kToInt:
        return fmt::format(
            "{}({})",
            at(node.args[0]).type == Type::kFloat ? "expression::to_int" : "static_cast<i32>",
            operand(node.args[0]));
      case Op::kToFloat:
        return fmt::format("static_cast<float>({})", operand(node.args[0]));
      case Op::kWhere: {
        const bool wide = node.type == Type::kInt && !narrow(index);
        return fmt::format("{} ? {} : {}", operand(node.args[0]), operand(node.args[1], wide),
                           operand(node.args[2], wide));
      }
      default:
        break;
    }
    const Type type = at(node.args[0]).type;
    if (type == Type::kFloat) return of_floats(node);
    if (type == Type::kBool) return of_booleans(node);
    return of_integers(index);
  }

  std::string table(std::int32_t index) const {
    const Node& node = at(index);
    if (node.num_args == 0) return fmt::format("expression::load(tables.t{}, 0)", node.integer);
    const Dims& shape = expression_.tables()[static_cast<std::size_t>(node.integer)].shape;
    std::string inside, offset;
    for (int d = 0; d < node.num_args; ++d) {
      const std::string place = fmt::format(
          "expression::place({}, {}LL)", operand(node.args[static_cast<std::size_t>(d)]), shape[d]);
      inside += fmt::format("{}{} >= 0", d == 0 ? "" : " && ", place);
      offset +=
          fmt::format("{}{} * tables.t{}_strides[{}]", d == 0 ? "" : " + ", place, node.integer, d);
    }
    return fmt::format("{} ? expression::load(tables.t{}, {}) : 0", inside, node.integer, offset);
  }

  std::string of_booleans(const Node& node) const {
    if (node.op == Op::kNot) return fmt::format("!{}", operand(node.args[0]));
    const std::string_view sign = node.op == Op::kXor ? "!=" : find_sign(node.op)->text;
    return fmt::format("{} {} {}", operand(node.args[0]), sign, operand(node.args[1]));
  }

  std::string of_floats(const Node& node) const {
    const std::string a = operand(node.args[0]);
    if (node.num_args == 1) {
      switch (node.op) {
        case Op::kNegate:
          return fmt::format("-{}", a);
        case Op::kAbs:
          return fmt::format("fabsf({})", a);
        case Op::kRsqrt:
        case Op::kSigmoid:
          return fmt::format("{}{}({})", kSpace, name_of(node.op), a);
        default:
          return fmt::format("{}f({})", name_of(node.op), a);
      }
    }
    const std::string b = operand(node.args[1]);
    switch (node.op) {
      case Op::kFloorDiv:
        return fmt::format("expression::floor_div({}, {})", a, b);
      case Op::kMod:
        return fmt::format("expression::floor_mod({}, {})", a, b);
      case Op::kPow:
        return fmt::format("expression::power({}, {})", a, b);
      case Op::kMin:
      case Op::kMax:
        return fmt::format("{}{}({}, {})", kSpace, name_of(node.op), a, b);
      default:
        return fmt::format("{} {} {}", a, find_sign(node.op)->text, b);
    }
  }

  std::string of_integers(std::int32_t index) const {
    const Node& node = at(index);
    bool wide = node.type == Type::kInt && !narrow(index);
    for (const std::int32_t arg : node.operands()) wide |= !narrow(arg);
    const std::string a = operand(node.args[0], wide);
    if (node.num_args == 1) {
      if (node.op == Op::kNot) return fmt::format("~{}", a);
      const std::string negated =
          wide ? fmt::format("expression::sub(0, {})", a) : fmt::format("-{}", a);
      return node.op == Op::kNegate ? cast(index, negated)
                                    : cast(index, fmt::format("{} < 0 ? {} : {}", a, negated, a));
    }
    const std::string b = operand(node.args[1], wide);
    if (is_comparison(node.op)) return fmt::format("{} {} {}", a, find_sign(node.op)->text, b);
    return cast(index, binary(node, a, b, wide));
  }

  /// A result of the operation's width in that of its vertex.
  std::string cast(std::int32_t index, const std::string& value) const {
    return fmt::format("static_cast<{}>({})", type_of(index), value);
  }

  std::string binary(const Node& node, const std::string& a, const std::string& b,
                     bool wide) const {
    const auto call = [&](std::string_view name) {
      return fmt::format("expression::{}({}, {})", name, a, b);
    };
    const Interval& divisor = bounds_[static_cast<std::size_t>(node.args[1])];
    const bool whole = bounds_[static_cast<std::size_t>(node.args[0])].lo >= 0 && divisor.lo > 0;
    switch (node.op) {
      case Op::kAdd:
        return wide ? call("add") : fmt::format("{} + {}", a, b);
      case Op::kSub:
        return wide ? call("sub") : fmt::format("{} - {}", a, b);
      case Op::kMul:
        return wide ? call("mul") : fmt::format("{} * {}", a, b);
      case Op::kFloorDiv:
        return whole ? fmt::format("{} / {}", a, b) : call("floor_div");
      case Op::kMod:
        return whole ? fmt::format("{} % {}", a, b) : call("floor_mod");
      case Op::kPow:
        return fmt::format("expression::power({}, {})", a, at(node.args[1]).integer);
      case Op::kShiftLeft:
        return call("shift_left");
      case Op::kShiftRight:
        return call("shift_right");
      case Op::kMin:
        return call("min");
      case Op::kMax:
        return call("max");
      default:
        return fmt::format("{} {} {}", a, find_sign(node.op)->text, b);
    }
  }

  const Expression& expression_;
  std::span<const Node> nodes_;
  std::vector<Interval> bounds_;
  std::string out_;
};

}  // namespace

std::string emit_cuda(const Expression& expression, const Ranges& ranges) {
  return Emitter(expression, ranges).emit();
}

std::int64_t num_table_words(const Expression& expression) {
  std::int64_t words = 0;
  for (const TableDecl& table : expression.tables()) words += 1 + table.shape.rank();
  return words == 0 ? 1 : words;
}

}  // namespace stof::expr
