#pragma once
// Integers of an expression as sums of multiples, and what that says about shifting q and k.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "expr/bounds.h"
#include "expr/expression.h"

namespace stof::expr {

/// constant + sum of coefficient * vertex; modulo 2^64 it is the value of the vertex it stands for.
struct Linear {
  std::int64_t constant = 0;
  /// By vertex, ascending; no coefficient is 0. Variables, and whatever is no sum itself.
  std::vector<std::pair<std::int32_t, std::int64_t>> terms;
};

/// a + factor * b, or nothing where a coefficient leaves 32 bits or the constant 48.
std::optional<Linear> add_scaled(const Linear& a, const Linear& b, std::int64_t factor);

/// What there is to know about the vertices of an integer or boolean expression.
class Analysis {
 public:
  /// `tables` bounds the values that are read.
  Analysis(const Expression& expression, const TableBounds& tables);

  const Linear& linear(std::int32_t node) const { return linear_[static_cast<std::size_t>(node)]; }
  /// lhs - rhs of a comparison; nothing where that could leave 64 bits at positions of up to 2^46.
  std::optional<Linear> difference(std::int32_t lhs, std::int32_t rhs) const;

  /// Depends on q and k through their difference only.
  bool relative(std::int32_t node) const { return period(node) == 1; }
  /// Where not 0: q + p and k + p give the same value as q and k, for all multiples p of this.
  std::int64_t period(std::int32_t node) const { return period_[static_cast<std::size_t>(node)]; }

 private:
  Linear linear_of(const Node& node, std::int32_t index) const;
  std::int64_t period_of(const Node& node, std::int32_t index) const;
  std::int64_t period_of(const Linear& sum) const;
  /// How much a sum grows when q and k grow by 1; its other terms must be relative.
  std::optional<std::int64_t> slope(const Linear& sum) const;
  bool fits(const Linear& sum) const;

  const Expression& expression_;
  std::vector<Interval> bounds_;
  std::vector<Linear> linear_;
  std::vector<std::int64_t> period_;
};

}  // namespace stof::expr
