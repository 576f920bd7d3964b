#pragma once
// Device source of an expression.

#include <string>

#include "expr/bounds.h"
#include "expr/expression.h"

namespace stof::expr {

/// A struct and a function in namespace stof, to stand after #include "attention/expression.cuh":
///
///   struct ScoreTables { ... };
///   __device__ __forceinline__ float score_mod(float score, i32 b, i32 h, i32 q, i32 k,
///                                              const ScoreTables& tables);
///
/// ScoreTables consists of 8-byte fields, so that the host fills it as an array of 64-bit words:
/// for each declared table in order the device address of element 0, then its rank strides in
/// elements. Without tables it holds one word that is ignored. num_table_words() says how many
/// there are.
///
/// Integers are computed in 32 bits where `ranges` prove that this is enough, else in 64. At a
/// position outside the ranges (padding of a tile) the value means nothing, but tables are never
/// read outside their extents. Of a boolean expression the function returns bool.
std::string emit_cuda(const Expression& expression, const Ranges& ranges);

/// 64-bit words of ScoreTables; at least 1.
std::int64_t num_table_words(const Expression& expression);

}  // namespace stof::expr
