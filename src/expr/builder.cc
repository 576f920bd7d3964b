#include "expr/builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/hash.h"
#include "expr/value.h"
#include "expr/words.h"

namespace stof::expr {
namespace {

[[noreturn]] void refuse(std::string_view what, std::string_view expected, Type a, Type b) {
  throw TypeFault{
      fmt::format("{}: expected {}, got {} and {}", what, expected, describe(a), describe(b))};
}

std::string_view spelling(Op op) {
  const Sign* sign = find_sign(op);
  return sign != nullptr ? sign->text : name_of(op);
}

std::uint64_t hash_of(const Node& node) {
  Hasher hasher;
  hasher.add(static_cast<std::int64_t>(node.op)).add(static_cast<std::int64_t>(node.type));
  hasher.add(node.args.data(), node.num_args * sizeof(node.args[0]));
  return hasher.add(node.integer)
      .add(static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(node.real)))
      .finish()
      .low;
}

/// == of floats would merge 0.0 with -0.0.
bool same(const Node& a, const Node& b) {
  return a == b && std::bit_cast<std::uint32_t>(a.real) == std::bit_cast<std::uint32_t>(b.real);
}

}  // namespace

bool Builder::is_integer(std::int32_t node, std::int64_t value) const {
  return is_constant(node) && at(node).type != Type::kFloat && at(node).integer == value;
}

std::int32_t Builder::add(const Node& node) {
  const std::uint64_t hash = hash_of(node);
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (same(at(it->second), node)) return it->second;
  int height = 0;
  for (const std::int32_t operand : node.operands())
    height = std::max(height, heights_[static_cast<std::size_t>(operand)] + 1);
  if (nodes_.size() >= kMaxNodes)
    throw TypeFault{fmt::format("expected at most {} operations; split the expression", kMaxNodes)};
  if (height > kMaxHeight)
    throw TypeFault{fmt::format(
        "operations follow one another more than {} deep; split the expression", kMaxHeight)};
  const auto index = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back(node);
  heights_.push_back(height);
  known_.emplace(hash, index);
  return index;
}

std::int32_t Builder::add(Op op, Type type, std::initializer_list<std::int32_t> operands) {
  Node node;
  node.op = op;
  node.type = type;
  node.num_args = static_cast<std::uint8_t>(operands.size());
  std::copy(operands.begin(), operands.end(), node.args.begin());
  const bool constant = std::all_of(operands.begin(), operands.end(),
                                    [&](std::int32_t operand) { return is_constant(operand); });
  return constant ? fold(node) : add(node);
}

// What a device rounds differently is left to it: only what IEEE 754 gives to the last bit is
// folded.
std::int32_t Builder::fold(const Node& node) {
  const Type operand_type = type(node.operands().back());
  const bool exact = operand_type != Type::kFloat || is_comparison(node.op) ||
                     node.op == Op::kToInt || node.op == Op::kNegate || node.op == Op::kAbs ||
                     node.op == Op::kAdd || node.op == Op::kSub || node.op == Op::kMul ||
                     node.op == Op::kDiv || node.op == Op::kWhere;
  if (!exact) return add(node);
  Value operands[3];  // no operation has more
  for (std::size_t i = 0; i < 3; ++i)
    if (i < node.num_args) operands[i] = {at(node.args[i]).integer, at(node.args[i]).real};
  const Value value = apply(node, operand_type, operands);
  if (node.type == Type::kFloat) return std::isnan(value.f) ? add(node) : real(value.f);
  return node.type == Type::kBool ? boolean(value.i != 0) : integer(value.i);
}

std::int32_t Builder::boolean(bool value) {
  Node node;
  node.type = Type::kBool;
  node.integer = value;
  return add(node);
}

std::int32_t Builder::integer(std::int64_t value) {
  Node node;
  node.integer = value;
  return add(node);
}

std::int32_t Builder::real(float value) {
  if (!floats_) throw TypeFault{"expected a whole number; a mask has no floats"};
  Node node;
  node.type = Type::kFloat;
  node.real = value;
  return add(node);
}

std::int32_t Builder::variable(Op op) {
  if (op == Op::kScore && !floats_)
    throw TypeFault{"score exists in score modifications only, not in masks"};
  Node node;
  node.op = op;
  node.type = op == Op::kScore ? Type::kFloat : Type::kInt;
  return add(node);
}

std::int32_t Builder::table(std::size_t table, std::span<const std::int32_t> indices) {
  const TableDecl& decl = (*tables_)[table];
  const auto rank = static_cast<std::size_t>(decl.shape.rank());
  if (indices.size() != rank)
    throw TypeFault{fmt::format("{} has shape {}: expected {} ind{}, got {}", decl.name,
                                decl.shape.to_string(), rank, rank == 1 ? "ex" : "ices",
                                indices.size())};
  Node node;
  node.op = Op::kTable;
  node.integer = static_cast<std::int64_t>(table);
  node.num_args = static_cast<std::uint8_t>(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    if (type(indices[i]) == Type::kFloat)
      throw TypeFault{
          fmt::format("{}: expected integers as indices, got a float; write int(x)", decl.name)};
    node.args[i] = convert(indices[i], Type::kInt);
  }
  const bool is_float =
      decl.dtype != DType::kBool && decl.dtype != DType::kInt32 && decl.dtype != DType::kInt64;
  node.type = is_float ? Type::kFloat : Type::kInt;
  const std::int32_t read = add(node);
  return decl.dtype == DType::kBool ? binary(Op::kNotEqual, read, integer(0)) : read;
}

Type Builder::common_type(std::int32_t a, std::int32_t b) const {
  return std::max(type(a), type(b));
}

std::int32_t Builder::to_int(std::int32_t a) {
  return type(a) == Type::kInt ? a : add(Op::kToInt, Type::kInt, {a});
}

std::int32_t Builder::to_float(std::int32_t a) {
  if (type(a) == Type::kFloat) return a;
  if (!floats_) throw TypeFault{"expected integers; a mask has no floats"};
  return add(Op::kToFloat, Type::kFloat, {to_int(a)});
}

std::int32_t Builder::convert(std::int32_t a, Type wanted) {
  if (wanted == Type::kBool) return a;
  return wanted == Type::kInt ? to_int(a) : to_float(a);
}

std::int32_t Builder::unary(Op op, std::int32_t a) {
  switch (op) {
    case Op::kToInt:
      return to_int(a);
    case Op::kToFloat:
      return to_float(a);
    case Op::kNot:
      if (type(a) == Type::kFloat)
        throw TypeFault{"~: expected a boolean or an integer, got a float"};
      if (at(a).op == Op::kNot) return at(a).args[0];
      return add(op, type(a), {a});
    case Op::kNegate:
    case Op::kAbs:
      a = convert(a, std::max(type(a), Type::kInt));
      if (at(a).op == Op::kNegate) {
        if (op == Op::kNegate) return at(a).args[0];
        a = at(a).args[0];
      }
      return add(op, type(a), {a});
    default:
      return add(op, Type::kFloat, {to_float(a)});
  }
}

std::int32_t Builder::binary(Op op, std::int32_t a, std::int32_t b) {
  if (is_comparison(op)) return compare(op, a, b);
  switch (op) {
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return logical(op, a, b);
    case Op::kShiftLeft:
    case Op::kShiftRight:
      if (common_type(a, b) == Type::kFloat) refuse(spelling(op), "two integers", type(a), type(b));
      a = to_int(a), b = to_int(b);
      return is_integer(b, 0) ? a : add(op, Type::kInt, {a, b});
    case Op::kAdd:
    case Op::kSub:
      return sum(op, a, b);
    case Op::kDiv:
      if (!floats_) throw TypeFault{"/ gives a float; write // for whole quotients"};
      return add(op, Type::kFloat, {to_float(a), to_float(b)});
    case Op::kPow: {
      const bool whole = common_type(a, b) != Type::kFloat && is_constant(b) &&
                         at(b).integer >= 0 && at(b).integer <= 63;
      if (whole) return add(op, Type::kInt, {to_int(a), to_int(b)});
      if (!floats_) throw TypeFault{"**: expected an exponent that is a number from 0 to 63"};
      return add(op, Type::kFloat, {to_float(a), to_float(b)});
    }
    default:
      return product(op, a, b);
  }
}

/// & | ^ of two booleans or two integers; a boolean met by an integer is one.
std::int32_t Builder::logical(Op op, std::int32_t a, std::int32_t b) {
  const Type common = common_type(a, b);
  if (common == Type::kFloat)
    refuse(spelling(op), "two booleans or two integers (write parentheses around comparisons)",
           type(a), type(b));
  a = convert(a, common), b = convert(b, common);
  if (common == Type::kBool) {
    for (const auto& [constant, other] : {std::pair{a, b}, std::pair{b, a}}) {
      if (!is_constant(constant)) continue;
      const bool value = at(constant).integer != 0;
      if (op == Op::kAnd) return value ? other : boolean(false);
      if (op == Op::kOr) return value ? boolean(true) : other;
      return value ? unary(Op::kNot, other) : other;
    }
  }
  if (a == b && op != Op::kXor) return a;
  return add(op, common, {a, b});
}

std::int32_t Builder::compare(Op op, std::int32_t a, std::int32_t b) {
  const bool equality = op == Op::kEqual || op == Op::kNotEqual;
  Type common = common_type(a, b);
  if (common == Type::kBool && !equality) common = Type::kInt;
  // (x as a number) == 0 is ~x and so on, so that tables of booleans print as they were read.
  if (equality && common == Type::kInt) {
    for (const auto& [constant, other] : {std::pair{a, b}, std::pair{b, a}}) {
      const bool number = is_constant(constant) && type(constant) == Type::kInt;
      std::int32_t inner = other;
      if (at(other).op == Op::kToInt) inner = at(other).args[0];
      if (!number || type(inner) != Type::kBool) continue;
      const std::int64_t value = at(constant).integer;
      if (value != 0 && value != 1) return boolean(op == Op::kNotEqual);
      return (value == 1) == (op == Op::kEqual) ? inner : unary(Op::kNot, inner);
    }
  }
  a = convert(a, common), b = convert(b, common);
  if (a == b && common != Type::kFloat) return boolean(op == Op::kEqual || op == Op::kLessEqual);
  return add(op, Type::kBool, {a, b});
}

std::int32_t Builder::sum(Op op, std::int32_t a, std::int32_t b) {
  const Type common = std::max(common_type(a, b), Type::kInt);
  a = convert(a, common), b = convert(b, common);
  if (common == Type::kInt) {
    if (is_integer(b, 0)) return a;
    if (is_integer(a, 0)) return op == Op::kAdd ? b : unary(Op::kNegate, b);
    if (a == b && op == Op::kSub) return integer(0);
  }
  // x + -3 is x - 3.
  if (is_constant(b) && !is_constant(a)) {
    const Node& constant = at(b);
    const bool negative =
        common == Type::kInt
            ? constant.integer < 0 && constant.integer != std::numeric_limits<std::int64_t>::min()
            : std::signbit(constant.real);
    if (negative) {
      b = common == Type::kInt ? integer(-constant.integer) : real(-constant.real);
      op = op == Op::kAdd ? Op::kSub : Op::kAdd;
    }
  }
  if (at(b).op == Op::kNegate) {
    b = at(b).args[0];
    op = op == Op::kAdd ? Op::kSub : Op::kAdd;
    if (a == b && op == Op::kSub && common == Type::kInt) return integer(0);
  }
  return add(op, common, {a, b});
}

/// * // % min max.
std::int32_t Builder::product(Op op, std::int32_t a, std::int32_t b) {
  const Type common = std::max(common_type(a, b), Type::kInt);
  a = convert(a, common), b = convert(b, common);
  if (common == Type::kInt) {
    if (op == Op::kMul && (is_integer(a, 0) || is_integer(b, 0))) return integer(0);
    if (op == Op::kMul && is_integer(a, 1)) return b;
    if ((op == Op::kMul || op == Op::kFloorDiv) && is_integer(b, 1)) return a;
    if (op == Op::kMod && (is_integer(b, 1) || is_integer(b, -1))) return integer(0);
  }
  if (a == b && (op == Op::kMin || op == Op::kMax)) return a;
  return add(op, common, {a, b});
}

std::int32_t Builder::where(std::int32_t condition, std::int32_t a, std::int32_t b) {
  if (type(condition) != Type::kBool)
    throw TypeFault{fmt::format("where: expected a boolean as the condition, got {}; compare it",
                                describe(type(condition)))};
  const Type common = common_type(a, b);
  a = convert(a, common), b = convert(b, common);
  if (is_constant(condition)) return at(condition).integer != 0 ? a : b;
  if (a == b) return a;
  return add(Op::kWhere, common, {condition, a, b});
}

}  // namespace stof::expr
