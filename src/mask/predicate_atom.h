#pragma once
// One undivided part of a predicate() and the primitives that it may be.

#include <optional>
#include <vector>

#include "expr/expression.h"
#include "expr/linear.h"
#include "mask/node.h"

namespace stof::mask {

/// Tables in the order in which an expression declares them; some may not be read.
expr::TableBounds bounds_of_tables(const IntTables& tables);

/// The primitive that sees the same pairs as a boolean expression does (at positions below 0: as
/// predicate() says, nothing unless it is relative), or nothing where there is none.
std::optional<Mask> recognise(const expr::Expression& expression, const expr::Analysis& analysis);

/// The same for scores of that shape and queries from q = offset on: what reads its tables inside
/// them only. It need not see the same pairs outside.
std::optional<Mask> recognise_tables(const expr::Expression& expression, const IntTables& tables,
                                     const ScoreShape& shape, std::int64_t offset);

/// The same for clamped distances of coordinates on a grid of tokens.
std::optional<Mask> recognise_grid(const expr::Expression& expression,
                                   const expr::Analysis& analysis, const ScoreShape& shape,
                                   std::int64_t offset);

/// `a & b` or `a | b` where two primitives are one: window(w, w) and multiples of a stride.
Mask join_atoms(bool is_and, std::vector<Mask> operands);

}  // namespace stof::mask
