#include "expr/bounds.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "expr/value.h"

namespace stof::expr {
namespace {

using I = std::int64_t;
__extension__ typedef __int128 Wide;

constexpr I kLowest = std::numeric_limits<I>::min();
constexpr I kHighest = std::numeric_limits<I>::max();

/// Of exact results; where one does not fit, arithmetic wraps and nothing is known.
Interval hull(std::initializer_list<Wide> values) {
  const Wide lo = std::min(values), hi = std::max(values);
  if (lo < kLowest || hi > kHighest) return {};
  return {static_cast<I>(lo), static_cast<I>(hi)};
}

Interval multiply(const Interval& a, const Interval& b) {
  return hull({Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo, Wide{a.hi} * b.hi});
}

Interval abs(const Interval& a) {
  if (a.lo == kLowest) return {};
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return {-a.hi, -a.lo};
  return {0, std::max(-a.lo, a.hi)};
}

/// For divisors of one sign, without 0.
Interval divide_by_sign(const Interval& a, const Interval& b) {
  if (a.lo == kLowest && b.hi == -1) return {};
  const auto quotient = [](I x, I y) { return Wide{arithmetic::floor_div(x, y)}; };
  return hull(
      {quotient(a.lo, b.lo), quotient(a.lo, b.hi), quotient(a.hi, b.lo), quotient(a.hi, b.hi)});
}

/// Joins `part` of the divisors below 0 and above 0, and 0 where 0 is among them.
template <class Part>
Interval by_sign(const Interval& b, Part part) {
  Interval out{kHighest, kLowest};
  if (b.lo < 0) out = join(out, part(Interval{b.lo, std::min<I>(b.hi, -1)}));
  if (b.lo <= 0 && b.hi >= 0) out = join(out, {0, 0});
  if (b.hi > 0) out = join(out, part(Interval{std::max<I>(b.lo, 1), b.hi}));
  return out;
}

Interval modulo_by_sign(const Interval& a, const Interval& b) {
  if (b.is_point() && b.lo != kLowest &&
      arithmetic::floor_div(a.lo, b.lo) == arithmetic::floor_div(a.hi, b.lo) &&
      !(b.lo == -1 && a.lo == kLowest))
    return {std::min(arithmetic::floor_mod(a.lo, b.lo), arithmetic::floor_mod(a.hi, b.lo)),
            std::max(arithmetic::floor_mod(a.lo, b.lo), arithmetic::floor_mod(a.hi, b.lo))};
  if (b.lo > 0) {
    if (a.lo >= 0 && a.hi < b.lo) return a;
    return {0, a.lo >= 0 ? std::min(a.hi, b.hi - 1) : b.hi - 1};
  }
  return {b.lo + 1, 0};
}

/// x^exponent grows with x, of an even exponent with |x|.
Interval power(const Interval& a, I exponent) {
  const Interval base = exponent % 2 == 0 ? abs(a) : a;
  Wide lo = 1, hi = 1;
  for (I i = 0; i < exponent; ++i) {
    lo *= base.lo, hi *= base.hi;
    if (lo < kLowest || lo > kHighest || hi < kLowest || hi > kHighest) return {};
  }
  return hull({lo, hi});
}

Interval shift_left(const Interval& a, const Interval& n) {
  if (n.lo < 0 || n.hi > 62) return {};
  return multiply(a, {I{1} << n.lo, I{1} << n.hi});
}

Interval shift_right(const Interval& a, const Interval& n) {
  const bool outside = n.lo < 0 || n.hi > 63;
  const I least = n.lo < 0 || n.lo > 63 ? (n.lo < 0 ? 0 : 63) : n.lo;
  const I most = outside ? 63 : n.hi;
  return hull({Wide{a.lo >> least}, Wide{a.lo >> most}, Wide{a.hi >> least}, Wide{a.hi >> most}});
}

Interval bitwise(Op op, const Interval& a, const Interval& b) {
  if (a.is_point() && b.is_point()) {
    I value = 0;
    with_int_binary(op, [&](auto f) { value = f(a.lo, b.lo); });
    return {value, value};
  }
  if (op == Op::kAnd && (a.lo >= 0 || b.lo >= 0))
    return {0, a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : std::min(a.hi, b.hi)};
  if (a.lo < 0 || b.lo < 0) return {};
  const int bits = std::bit_width(static_cast<std::uint64_t>(std::max(a.hi, b.hi)));
  const I ones = bits >= 63 ? kHighest : (I{1} << bits) - 1;
  return {op == Op::kOr ? std::max(a.lo, b.lo) : 0, ones};
}

/// & | ^ == != of two booleans.
Interval logical(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::kAnd:
      return {a.lo & b.lo, a.hi & b.hi};
    case Op::kOr:
      return {a.lo | b.lo, a.hi | b.hi};
    default:
      break;
  }
  if (!a.is_point() || !b.is_point()) return {0, 1};
  const I value = (a.lo ^ b.lo) ^ (op == Op::kEqual ? 1 : 0);
  return {value, value};
}

Interval compare(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::kLess:
      return {a.hi < b.lo, a.lo < b.hi};
    case Op::kLessEqual:
      return {a.hi <= b.lo, a.lo <= b.hi};
    default:
      break;
  }
  const bool always = a.is_point() && a == b;
  const bool never = a.hi < b.lo || b.hi < a.lo;
  if (op == Op::kEqual) return {always, !never};
  return {never, !always};
}

Interval binary(Op op, const Interval& a, const Interval& b, bool same) {
  switch (op) {
    case Op::kAdd:
      return hull({Wide{a.lo} + b.lo, Wide{a.hi} + b.hi});
    case Op::kSub:
      return hull({Wide{a.lo} - b.hi, Wide{a.hi} - b.lo});
    case Op::kMul:
      return same ? power(a, 2) : multiply(a, b);
    case Op::kFloorDiv:
      return by_sign(b, [&](const Interval& part) { return divide_by_sign(a, part); });
    case Op::kMod:
      return by_sign(b, [&](const Interval& part) { return modulo_by_sign(a, part); });
    case Op::kPow:
      return power(a, b.lo);
    case Op::kShiftLeft:
      return shift_left(a, b);
    case Op::kShiftRight:
      return shift_right(a, b);
    case Op::kMin:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::kMax:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    default:
      return bitwise(op, a, b);
  }
}

Interval unary(Op op, Type type, const Interval& a) {
  switch (op) {
    case Op::kNegate:
      return hull({-Wide{a.lo}, -Wide{a.hi}});
    case Op::kNot:
      return type == Type::kBool ? Interval{1 - a.hi, 1 - a.lo} : Interval{~a.hi, ~a.lo};
    case Op::kAbs:
      return abs(a);
    default:
      return a;  // of a boolean as a number
  }
}

class Pass {
 public:
  Pass(const Expression& expression, const Ranges& ranges, const TableBounds& tables,
       std::vector<Interval>& out)
      : nodes_(expression.nodes()), ranges_(ranges), tables_(tables), out_(out) {}

  void run() {
    out_.clear();
    for (const Node& node : nodes_) out_.push_back(of(node));
  }

 private:
  const Interval& at(std::int32_t node) const { return out_[static_cast<std::size_t>(node)]; }

  Interval of(const Node& node) const {
    switch (node.op) {
      case Op::kConstant:
        return {node.integer, node.integer};
      case Op::kBatch:
        return ranges_.b;
      case Op::kHead:
        return ranges_.h;
      case Op::kQuery:
        return ranges_.q;
      case Op::kKey:
        return ranges_.k;
      default:
        break;
    }
    if (node.type == Type::kFloat) return {};
    if (node.op == Op::kTable) return of_table(node);
    if (node.op == Op::kWhere) {
      const Interval& condition = at(node.args[0]);
      if (condition.is_point()) return at(node.args[condition.lo != 0 ? 1 : 2]);
      return join(at(node.args[1]), at(node.args[2]));
    }
    const Type type = nodes_[static_cast<std::size_t>(node.args[0])].type;
    if (type == Type::kFloat) return node.type == Type::kBool ? Interval{0, 1} : Interval{};
    const Interval& a = at(node.args[0]);
    if (node.num_args == 1) return unary(node.op, type, a);
    const Interval& b = at(node.args[1]);
    if (type == Type::kBool) return logical(node.op, a, b);
    if (is_comparison(node.op)) return compare(node.op, a, b);
    return binary(node.op, a, b, node.args[0] == node.args[1]);
  }

  Interval of_table(const Node& node) const {
    std::array<Interval, Dims::kMaxRank> indices;
    for (std::size_t i = 0; i < node.num_args; ++i) indices[i] = at(node.args[i]);
    return tables_(static_cast<std::size_t>(node.integer), {indices.data(), node.num_args});
  }

  std::span<const Node> nodes_;
  const Ranges& ranges_;
  const TableBounds& tables_;
  std::vector<Interval>& out_;
};

}  // namespace

TableBounds unknown_tables(const Expression& expression) {
  return [tables = expression.shared_tables()](std::size_t table, std::span<const Interval>) {
    switch ((*tables)[table].dtype) {
      case DType::kBool:
        return Interval{0, 1};
      case DType::kInt32:
        return Interval{std::numeric_limits<std::int32_t>::min(),
                        std::numeric_limits<std::int32_t>::max()};
      default:
        return Interval{};
    }
  };
}

void bounds_of(const Expression& expression, const Ranges& ranges, const TableBounds& tables,
               std::vector<Interval>& bounds) {
  Pass(expression, ranges, tables, bounds).run();
}

std::vector<Interval> bounds_of(const Expression& expression, const Ranges& ranges,
                                const TableBounds& tables) {
  std::vector<Interval> bounds;
  bounds_of(expression, ranges, tables, bounds);
  return bounds;
}

}  // namespace stof::expr
