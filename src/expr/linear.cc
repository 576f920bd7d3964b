#include "expr/linear.h"

#include <cstdlib>
#include <limits>
#include <numeric>

#include "expr/value.h"

namespace stof::expr {
namespace {

using I = std::int64_t;

constexpr I kMaxCoefficient = I{1} << 32;
constexpr I kMaxConstant = I{1} << 48;
constexpr I kMaxPosition = I{1} << 46;
constexpr I kMaxIndex = I{1} << 31;
constexpr I kMaxPeriod = I{1} << 31;  // so that a common multiple of two fits
constexpr std::size_t kMaxTerms = 16;

}  // namespace

std::optional<Linear> add_scaled(const Linear& a, const Linear& b, std::int64_t factor) {
  Linear out;
  I scaled = 0;
  if (__builtin_mul_overflow(b.constant, factor, &scaled) ||
      __builtin_add_overflow(a.constant, scaled, &out.constant) || out.constant < -kMaxConstant ||
      out.constant > kMaxConstant)
    return std::nullopt;
  auto x = a.terms.begin();
  auto y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    const bool take_x = y == b.terms.end() || (x != a.terms.end() && x->first <= y->first);
    const bool take_y = x == a.terms.end() || (y != b.terms.end() && y->first <= x->first);
    const std::int32_t node = take_x ? x->first : y->first;
    I coefficient = 0;
    if (take_y && (__builtin_mul_overflow(y->second, factor, &coefficient) ||
                   coefficient < -kMaxCoefficient || coefficient > kMaxCoefficient))
      return std::nullopt;
    if (take_x) coefficient += x->second;
    if (std::abs(coefficient) > kMaxCoefficient) return std::nullopt;
    if (coefficient != 0) out.terms.emplace_back(node, coefficient);
    if (take_x) ++x;
    if (take_y) ++y;
  }
  if (out.terms.size() > kMaxTerms) return std::nullopt;
  return out;
}

Analysis::Analysis(const Expression& expression, const TableBounds& tables)
    : expression_(expression) {
  const Interval anywhere{-kMaxPosition, kMaxPosition}, index{0, kMaxIndex};
  bounds_ = bounds_of(expression, {index, index, anywhere, anywhere}, tables);
  for (std::size_t i = 0; i < expression.nodes().size(); ++i) {
    const auto node = static_cast<std::int32_t>(i);
    linear_.push_back(linear_of(expression.nodes()[i], node));
    period_.push_back(period_of(expression.nodes()[i], node));
  }
}

Linear Analysis::linear_of(const Node& node, std::int32_t index) const {
  const Linear itself{0, {{index, 1}}};
  if (node.type != Type::kInt) return itself;
  std::optional<Linear> sum;
  const auto constant_of = [&](std::int32_t operand) -> std::optional<I> {
    const Linear& value = linear(operand);
    return value.terms.empty() ? std::optional(value.constant) : std::nullopt;
  };
  switch (node.op) {
    case Op::kConstant:
      if (node.integer >= -kMaxConstant && node.integer <= kMaxConstant) return {node.integer, {}};
      return itself;
    case Op::kNegate:
      sum = add_scaled({}, linear(node.args[0]), -1);
      break;
    case Op::kAdd:
      sum = add_scaled(linear(node.args[0]), linear(node.args[1]), 1);
      break;
    case Op::kSub:
      sum = add_scaled(linear(node.args[0]), linear(node.args[1]), -1);
      break;
    case Op::kMul:
      if (const auto right = constant_of(node.args[1]))
        sum = add_scaled({}, linear(node.args[0]), *right);
      else if (const auto left = constant_of(node.args[0]))
        sum = add_scaled({}, linear(node.args[1]), *left);
      break;
    default:
      break;
  }
  return sum ? *sum : itself;
}

bool Analysis::fits(const Linear& sum) const {
  constexpr double kLimit = 0x1p61;
  double most = std::abs(static_cast<double>(sum.constant));
  for (const auto& [node, coefficient] : sum.terms) {
    const Interval& bounds = bounds_[static_cast<std::size_t>(node)];
    most += std::abs(static_cast<double>(coefficient)) *
            std::max(std::abs(static_cast<double>(bounds.lo)),
                     std::abs(static_cast<double>(bounds.hi)));
  }
  return most < kLimit;
}

std::optional<Linear> Analysis::difference(std::int32_t lhs, std::int32_t rhs) const {
  if (!fits(linear(lhs)) || !fits(linear(rhs))) return std::nullopt;
  std::optional<Linear> out = add_scaled(linear(lhs), linear(rhs), -1);
  return out && fits(*out) ? out : std::nullopt;
}

std::optional<std::int64_t> Analysis::slope(const Linear& sum) const {
  I total = 0;
  for (const auto& [node, coefficient] : sum.terms) {
    const Op op = expression_.nodes()[static_cast<std::size_t>(node)].op;
    if (op == Op::kQuery || op == Op::kKey)
      total += coefficient;
    else if (!relative(node))
      return std::nullopt;
  }
  return total;
}

std::int64_t Analysis::period_of(const Linear& sum) const { return slope(sum) == 0 ? 1 : 0; }

std::int64_t Analysis::period_of(const Node& node, std::int32_t index) const {
  if (node.op == Op::kQuery || node.op == Op::kKey) return 0;
  I period = 1;  // of the operands together; 0 with any that has none
  for (const std::int32_t operand : node.operands()) {
    const I other = period_[static_cast<std::size_t>(operand)];
    period = period == 0 || other == 0 ? 0 : std::lcm(period, other);
    if (period > kMaxPeriod) period = 0;
  }
  if (period != 0) return period;
  // Sums of q and k may cancel although neither stays what it is.
  const bool is_sum = node.type == Type::kInt &&
                      (linear(index).terms.size() != 1 || linear(index).terms[0].first != index);
  if (is_sum) return period_of(linear(index));
  if (is_comparison(node.op)) {
    const std::optional<Linear> sum = difference(node.args[0], node.args[1]);
    return sum ? period_of(*sum) : 0;
  }
  if (node.op == Op::kMod) {
    const Linear& dividend = linear(node.args[0]);
    const Linear& divisor = linear(node.args[1]);
    const std::optional<I> growth = slope(dividend);
    if (!growth || !divisor.terms.empty() || divisor.constant <= 0 || !fits(dividend)) return 0;
    return divisor.constant / std::gcd(divisor.constant, *growth);
  }
  return 0;
}

}  // namespace stof::expr
