#pragma once
// Interval bounds of an expression's integers and booleans over ranges of its variables.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "expr/expression.h"

namespace stof::expr {

/// lo to hi, both inclusive. Of a boolean within 0 and 1.
struct Interval {
  std::int64_t lo = std::numeric_limits<std::int64_t>::min();
  std::int64_t hi = std::numeric_limits<std::int64_t>::max();

  bool is_point() const { return lo == hi; }
  bool operator==(const Interval& other) const = default;
};

/// What both lie in.
inline Interval join(const Interval& a, const Interval& b) {
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

/// Where the variables lie; for queries and keys positions, not indices of rows.
struct Ranges {
  Interval b, h, q, k;
};

/// The values a table has at those indices, and 0 where some lie outside.
using TableBounds = std::function<Interval(std::size_t table, std::span<const Interval> indices)>;

/// Bounds that hold for any table content of the declared types.
TableBounds unknown_tables(const Expression& expression);

/// [nodes] For every choice of variables in the ranges, the value of an integer or boolean vertex
/// lies in its interval. Those of floats say nothing.
std::vector<Interval> bounds_of(const Expression& expression, const Ranges& ranges,
                                const TableBounds& tables);

/// The same into memory that is kept from call to call.
void bounds_of(const Expression& expression, const Ranges& ranges, const TableBounds& tables,
               std::vector<Interval>& bounds);

}  // namespace stof::expr
