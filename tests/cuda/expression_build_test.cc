// The source of expressions, compiled: every operation and every type of table. Needs NVRTC.

#include <gtest/gtest.h>

#include "expr/emit.h"
#include "jit/nvrtc.h"

namespace stof::expr {
namespace {

const std::vector<TableDecl> kTables = {
    {"flags", DType::kBool, {8}},     {"small", DType::kInt32, {8}},
    {"large", DType::kInt64, {4, 8}}, {"real", DType::kFloat32, {8}},
    {"half", DType::kFloat16, {8}},   {"brain", DType::kBFloat16, {8}},
    {"one", DType::kFloat32, {}}};

// Integers that need 32 bits and such that need 64, and all functions of floats.
constexpr const char* kText =
    "where((((q + k) * 3 - h) // 5 % 7 <= min(q << 2, k >> 1)) & flags[k] | ~(q == k) ^ (b != h),"
    " score * real[q] + half[k] / one - brain[-1] + exp(score) + exp2(score) + log(score)"
    " + log2(score) + sqrt(score) + rsqrt(score) + tanh(score) + sigmoid(score) + sin(score)"
    " + cos(score) + abs(score) ** 2 + score ** 3 + pow(score, 0.5) + score // 2 + score % 3"
    " + min(score, 1) + max(-score, 2),"
    " float(int(score) + small[q] * large[b, k] - abs(q - k) ** 3 + (q * 1000003 << 9)"
    " + max(large[b, q] // 3, large[b, k] % -5) + (~q | k ^ 3 & 5) + (q > k) + -k) - inf)";

TEST(ExpressionNvrtc, CompilesEveryOperation) {
  const Expression expression = parse_score(kText, kTables);
  EXPECT_EQ(num_table_words(expression), 2 + 2 + 3 + 2 + 2 + 2 + 1);
  const Ranges ranges{{0, 3}, {0, 7}, {0, 99'999}, {0, 99'999}};
  const std::string source =
      "#include \"attention/expression.cuh\"\n" + emit_cuda(expression, ranges) +
      "extern \"C\" __global__ void f(float* x, stof::ScoreTables t) {\n"
      "  *x = stof::score_mod(*x, blockIdx.y, blockIdx.z, blockIdx.x, threadIdx.x, t);\n}\n";
  for (const char* target : {"sm_80", "sm_90a"})
    EXPECT_FALSE(jit::Nvrtc::instance().compile("expression", source, target).cubin.empty());
}

TEST(Emit, CountsInSixtyFourBitsOnlyWhereItMust) {
  const auto emitted = [](const char* text, std::int64_t length) {
    const Interval index{0, 7}, position{0, length - 1};
    return emit_cuda(parse_score(text, kTables), {index, index, position, position});
  };
  EXPECT_EQ(emitted("score + (q * 40000 + k)", 50'000).find("i64 v"), std::string::npos);
  EXPECT_NE(emitted("score + (q * 50000 + k)", 50'000).find("i64 v"), std::string::npos);
  EXPECT_EQ(emitted("score + small[q]", 50'000).find("i64 v"), std::string::npos);
  EXPECT_NE(emitted("score + large[b, q]", 50'000).find("i64 v"), std::string::npos);
}

}  // namespace
}  // namespace stof::expr
