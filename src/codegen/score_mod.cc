#include "codegen/score_mod.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "core/hash.h"
#include "expr/emit.h"

namespace stof::codegen {
namespace {

using expr::Op;

/// Instructions of one vertex, read off what the compiler makes of
/// kernels/attention/expression.cuh; those that the special function unit takes a while for count
/// accordingly.
double cost_of(const expr::Node& node) {
  const bool is_float = node.type == expr::Type::kFloat;
  switch (node.op) {
    case Op::kConstant:
    case Op::kScore:
    case Op::kBatch:
    case Op::kHead:
    case Op::kQuery:
    case Op::kKey:
      return 0;
    case Op::kTable:
      return 8 + 6.0 * node.num_args;
    case Op::kExp:
    case Op::kExp2:
      return 8;
    case Op::kLog:
    case Op::kLog2:
    case Op::kSqrt:
      return 14;
    case Op::kRsqrt:
    case Op::kSigmoid:
    case Op::kTanh:
      return 20;
    case Op::kSin:
    case Op::kCos:
    case Op::kPow:
      return is_float ? 50 : 8;
    case Op::kDiv:
      return 10;
    case Op::kFloorDiv:
    case Op::kMod:
      return is_float ? 40 : 20;
    case Op::kToInt:
    case Op::kToFloat:
      return 4;
    case Op::kMin:
    case Op::kMax:
      return is_float ? 3 : 1;
    default:
      return 1;
  }
}

/// What changes along a row: the rest is computed once for all its keys.
double cost_of(const expr::Expression& expression) {
  double cost = 0;
  std::vector<bool> varies;
  for (const expr::Node& node : expression.nodes()) {
    const auto operands = node.operands();
    varies.push_back(node.op == Op::kKey || node.op == Op::kScore ||
                     std::any_of(operands.begin(), operands.end(), [&](std::int32_t operand) {
                       return varies[static_cast<std::size_t>(operand)];
                     }));
    if (varies.back()) cost += cost_of(node);
  }
  return cost;
}

}  // namespace

ScoreModCode score_mod_code(const expr::Expression& expression, const expr::Ranges& ranges) {
  // Up to here a copy for every score costs less than passing the scores by one copy (scores.cuh).
  constexpr double kMostUnrolled = 8;
  ScoreModCode code;
  code.cost = cost_of(expression);
  code.table_words = expr::num_table_words(expression);
  code.text = "#include \"attention/expression.cuh\"\n" + expr::emit_cuda(expression, ranges);
  code.text += fmt::format(
      R"(namespace stof {{
struct ScoreMod {{
  static constexpr bool kUnrolled = {unrolled};
  struct Params : AttentionParams {{
    ScoreTables tables;
  }};
  static __device__ __forceinline__ float apply(const Params& params, float score, i32 b, i32 h, i32 q, i32 k) {{
    return score_mod(score, b, h, q, k, params.tables);
  }}
}};
static_assert(sizeof(ScoreMod::Params) == sizeof(AttentionParams) + {bytes}, "host and device disagree on tables");
}}
)",
      fmt::arg("unrolled", code.cost <= kMostUnrolled), fmt::arg("bytes", 8 * code.table_words));
  code.tag = fingerprint_of(code.text).hex().substr(0, 12);
  return code;
}

std::string score_mod_members(const ScoreModCode* code) {
  if (code == nullptr) return "static constexpr bool kScoreMod = false;";
  return "static constexpr bool kScoreMod = true;\n  using ScoreMod = stof::ScoreMod;";
}

std::string params_type(const ScoreModCode* code) {
  return code == nullptr ? "stof::AttentionParams" : "stof::ScoreMod::Params";
}

}  // namespace stof::codegen
