#pragma once
// The words of the language.

#include <optional>
#include <string_view>
#include <vector>

#include "expr/expression.h"

namespace stof::expr {

/// A function written name(x, ...).
struct FunctionWord {
  std::string_view name;
  Op op;
  int min_args, max_args;
  bool floats_only;  ///< not in predicates
};

const FunctionWord* find_function(std::string_view name);

/// b, h, q, k, score.
std::optional<Op> variable_of(std::string_view name);

/// Functions, variables, True, False, inf.
bool is_word(std::string_view name);
std::vector<std::string_view> words();

/// A binary operator: how tightly it binds, and its sign. Higher binds tighter.
struct Sign {
  std::string_view text;
  int precedence;
  Op op;
  bool swapped;  ///< > and >=: the operands change places
};

inline constexpr int kComparison = 1, kOr = 2, kXor = 3, kAnd = 4, kShift = 5, kSum = 6,
                     kProduct = 7, kUnary = 8, kPower = 9, kPrimary = 10;

/// Of a sign of the text; null when it is no binary operator.
const Sign* find_sign(std::string_view text);
/// Of an operation; null when it is written as a function or unary.
const Sign* find_sign(Op op);

/// The name of a function or variable of that operation.
std::string_view name_of(Op op);

}  // namespace stof::expr
