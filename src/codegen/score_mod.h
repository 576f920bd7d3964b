#pragma once
// A score modification as a block-wise attention kernel takes it: the caller's expression compiled
// into the kernel (kernels/attention/scores.cuh).

#include <cstdint>
#include <string>

#include "expr/bounds.h"
#include "expr/expression.h"

namespace stof::codegen {

/// The function, in a kernel's terms.
struct ScoreModCode {
  std::string text;              ///< defines stof::ScoreMod, with Params and apply()
  std::string tag;               ///< 12 hexadecimal digits that stand for the text in kernel names
  double cost = 0;               ///< estimated instructions of a score
  std::int64_t table_words = 1;  ///< 64-bit words that follow AttentionParams (expr/emit.h)
};

/// `ranges`: of every place that the kernel is to be right for.
ScoreModCode score_mod_code(const expr::Expression& expression, const expr::Ranges& ranges);

/// Members of a kernel's Config; null: without a score modification.
std::string score_mod_members(const ScoreModCode* code);
/// The type of a kernel's first parameter.
std::string params_type(const ScoreModCode* code);

}  // namespace stof::codegen
