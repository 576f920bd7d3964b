#pragma once
// What expressions in (b, h, q, k), those of predicate() masks and of score modifications, may read
// besides their variables. docs/masks.md has the language.

#include <string>

#include "stof/dtype.h"
#include "stof/tensor.h"

namespace stof::expr {

/// A table an expression may read as name[i, j, ...], its values left open. A read outside it gives
/// 0; an index below 0 counts from the end, as far as that goes.
struct TableDecl {
  std::string name;             ///< letters, digits and _; not a word of the language
  DType dtype = DType::kInt64;  ///< bool, int32, int64; for scores also float32, float16, bfloat16
  Dims shape;                   ///< one index per extent; of rank 0, read as the bare name
};

}  // namespace stof::expr
