#include "expr/value.h"

namespace stof::expr {
namespace {

Value boolean(bool value) { return {value ? 1 : 0, 0}; }

Value apply_to_floats(const Node& node, const Value* operands) {
  Value out;
  if (is_comparison(node.op)) {
    with_comparison(node.op, [&](auto f) { out = boolean(f(operands[0].f, operands[1].f)); });
  } else if (node.num_args == 1) {
    with_float_unary(node.op, [&](auto f) { out.f = f(operands[0].f); });
  } else {
    with_float_binary(node.op, [&](auto f) { out.f = f(operands[0].f, operands[1].f); });
  }
  return out;
}

}  // namespace

Value apply(const Node& node, Type operand_type, const Value* operands) {
  Value out;
  switch (node.op) {
    case Op::kWhere:
      return operands[0].i != 0 ? operands[1] : operands[2];
    case Op::kToInt:
      out.i = operand_type == Type::kFloat ? arithmetic::to_int(operands[0].f) : operands[0].i;
      return out;
    case Op::kToFloat:
      out.f = static_cast<float>(operands[0].i);
      return out;
    default:
      break;
  }
  if (operand_type == Type::kFloat) return apply_to_floats(node, operands);
  if (is_comparison(node.op)) {
    with_comparison(node.op, [&](auto f) { out = boolean(f(operands[0].i, operands[1].i)); });
  } else if (operand_type == Type::kBool && node.op == Op::kNot) {
    out = boolean(operands[0].i == 0);
  } else if (node.num_args == 1) {
    with_int_unary(node.op, [&](auto f) { out.i = f(operands[0].i); });
  } else {
    with_int_binary(node.op, [&](auto f) { out.i = f(operands[0].i, operands[1].i); });
  }
  return out;
}

}  // namespace stof::expr
