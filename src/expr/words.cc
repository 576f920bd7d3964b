#include "expr/words.h"

#include <utility>

namespace stof::expr {
namespace {

constexpr int kMany = 1000;

constexpr FunctionWord kFunctions[] = {
    {"abs", Op::kAbs, 1, 1, false},        {"min", Op::kMin, 2, kMany, false},
    {"max", Op::kMax, 2, kMany, false},    {"where", Op::kWhere, 3, 3, false},
    {"int", Op::kToInt, 1, 1, false},      {"float", Op::kToFloat, 1, 1, true},
    {"pow", Op::kPow, 2, 2, true},         {"exp", Op::kExp, 1, 1, true},
    {"exp2", Op::kExp2, 1, 1, true},       {"log", Op::kLog, 1, 1, true},
    {"log2", Op::kLog2, 1, 1, true},       {"sqrt", Op::kSqrt, 1, 1, true},
    {"rsqrt", Op::kRsqrt, 1, 1, true},     {"tanh", Op::kTanh, 1, 1, true},
    {"sigmoid", Op::kSigmoid, 1, 1, true}, {"sin", Op::kSin, 1, 1, true},
    {"cos", Op::kCos, 1, 1, true},
};

constexpr std::pair<std::string_view, Op> kVariables[] = {
    {"b", Op::kBatch}, {"h", Op::kHead}, {"q", Op::kQuery}, {"k", Op::kKey}, {"score", Op::kScore}};

constexpr std::string_view kConstants[] = {"True", "False", "inf"};

constexpr Sign kSigns[] = {
    {"==", kComparison, Op::kEqual, false},
    {"!=", kComparison, Op::kNotEqual, false},
    {"<", kComparison, Op::kLess, false},
    {"<=", kComparison, Op::kLessEqual, false},
    {">", kComparison, Op::kLess, true},
    {">=", kComparison, Op::kLessEqual, true},
    {"|", kOr, Op::kOr, false},
    {"^", kXor, Op::kXor, false},
    {"&", kAnd, Op::kAnd, false},
    {"<<", kShift, Op::kShiftLeft, false},
    {">>", kShift, Op::kShiftRight, false},
    {"+", kSum, Op::kAdd, false},
    {"-", kSum, Op::kSub, false},
    {"*", kProduct, Op::kMul, false},
    {"/", kProduct, Op::kDiv, false},
    {"//", kProduct, Op::kFloorDiv, false},
    {"%", kProduct, Op::kMod, false},
    {"**", kPower, Op::kPow, false},
};

}  // namespace

const FunctionWord* find_function(std::string_view name) {
  for (const FunctionWord& function : kFunctions)
    if (function.name == name) return &function;
  return nullptr;
}

std::optional<Op> variable_of(std::string_view name) {
  for (const auto& [word, op] : kVariables)
    if (word == name) return op;
  return std::nullopt;
}

bool is_word(std::string_view name) {
  for (const std::string_view word : words())
    if (word == name) return true;
  return false;
}

std::vector<std::string_view> words() {
  std::vector<std::string_view> all;
  for (const auto& variable : kVariables) all.push_back(variable.first);
  for (const FunctionWord& function : kFunctions) all.push_back(function.name);
  for (const std::string_view constant : kConstants) all.push_back(constant);
  return all;
}

const Sign* find_sign(std::string_view text) {
  for (const Sign& sign : kSigns)
    if (sign.text == text) return &sign;
  return nullptr;
}

const Sign* find_sign(Op op) {
  for (const Sign& sign : kSigns)
    if (sign.op == op && !sign.swapped) return &sign;
  return nullptr;
}

std::string_view name_of(Op op) {
  for (const auto& [word, variable] : kVariables)
    if (variable == op) return word;
  for (const FunctionWord& function : kFunctions)
    if (function.op == op) return function.name;
  return "?";
}

}  // namespace stof::expr
