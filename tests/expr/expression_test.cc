// Text, types and canonical form of expressions, and what they evaluate to.

#include "expr/expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "expr/program.h"
#include "stof/error.h"

namespace stof::expr {
namespace {

const std::vector<TableDecl> kTables = {{"doc", DType::kInt64, {8}},
                                        {"keep", DType::kBool, {8}},
                                        {"bias", DType::kFloat32, {2, 3}},
                                        {"limit", DType::kInt32, {}}};
const std::vector<TableDecl> kWholeTables = {kTables[0], kTables[1], kTables[3]};

std::string score_text(std::string_view text) { return parse_score(text, kTables).to_text(); }
std::string predicate_text(std::string_view text) {
  return parse_predicate(text, kWholeTables).to_text();
}

std::string error_of(std::string_view text, bool score = false) {
  try {
    score ? parse_score(text, kTables) : parse_predicate(text, kWholeTables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Expression, HasACanonicalText) {
  EXPECT_EQ(predicate_text("q>=k"), "k <= q");
  EXPECT_EQ(predicate_text("(q - k <= 4) & (doc[q] == doc[k])"),
            "(q - k <= 4) & (doc[q] == doc[k])");
  EXPECT_EQ(predicate_text("q - (k - 3) < 2 ** 3 * 2"), "q - (k - 3) < 16");
  EXPECT_EQ(predicate_text("keep[q] & ~keep[k]"), "(keep[q] != 0) & ~(keep[k] != 0)");
  EXPECT_EQ(predicate_text("(keep[q] != 0) & True"), "keep[q] != 0");
  EXPECT_EQ(predicate_text("k < limit"), "k < limit");
  EXPECT_EQ(predicate_text("where(h < 2, q == k, False)"), "where(h < 2, q == k, False)");
  EXPECT_EQ(predicate_text("q + -3 < +k"), "q - 3 < k");
  EXPECT_EQ(predicate_text("-(-q) == ~~k"), "q == k");
  EXPECT_EQ(predicate_text("1 << 3 == q | 3 & k ^ b"), "8 == q | 3 & k ^ b");
  EXPECT_EQ(predicate_text("(q > k) + 1 == 2"), "int(k < q) + 1 == 2");
  EXPECT_EQ(predicate_text("-9223372036854775807 - 1 < q"), "-9223372036854775807 - 1 < q");
  EXPECT_EQ(predicate_text("q == q"), "True");
  EXPECT_EQ(predicate_text("min(q, k, 7) < 3"), "min(min(q, k), 7) < 3");
  EXPECT_EQ(score_text("score"), "score");
  EXPECT_EQ(score_text("score*2"), "score * 2.0");
  EXPECT_EQ(score_text("score + (q-k)"), "score + float(q - k)");
  EXPECT_EQ(score_text("where(q >= k, score, -inf)"), "where(k <= q, score, -inf)");
  EXPECT_EQ(score_text("20 * tanh(score / 20)"), "20.0 * tanh(score / 20.0)");
  EXPECT_EQ(score_text("score + bias[h, min(max(q - k, 0), 2)]"),
            "score + bias[h, min(max(q - k, 0), 2)]");
  EXPECT_EQ(score_text("-score ** -2.5"), "-score ** -2.5");
  EXPECT_EQ(score_text("(-score) ** 2"), "(-score) ** 2.0");
  EXPECT_EQ(score_text("q / k"), "float(q) / float(k)");
  EXPECT_EQ(score_text("1"), "1.0");
  EXPECT_EQ(score_text("score * 1e-3 + 1e10"), "score * 0.001 + 10000000000.0");
}

TEST(Expression, PointsAtWhatIsWrong) {
  EXPECT_EQ(
      error_of("q < xyzw"),
      "predicate, column 5: unknown name \"xyzw\"; expected b, h, q, k, a function or a table "
      "that is given\n  q < xyzw\n      ^");
  const auto expect = [](std::string_view text, const std::string& part, bool score = false) {
    EXPECT_NE(error_of(text, score).find(part), std::string::npos) << error_of(text, score);
  };
  expect("q - k", "column 1: expected a boolean result, got an integer; compare it");
  expect("q < k < 3", "column 7: expected the end of the comparison");
  expect("q < 2.5", "column 5: expected a whole number; a mask has no floats");
  expect("q / k < 2", "column 3: / gives a float; write // for whole quotients");
  expect("(q < k) and (k < 3)", "column 9: unexpected \"and\"; write & | ~");
  expect("not (q < k)", "column 1: unexpected \"not\"");
  expect("q < k & h", "no error");
  expect("(q < k) && (k < 2)", "column 10: expected a value, got a second &; write one &");
  expect("q = k", "column 3: unexpected \"=\"; write == to compare");
  expect("!(q < k)", "column 1: unexpected \"!\"; write ~ for not");
  expect("score < 1", "column 1: score exists in score modifications only");
  expect("doc[q, k] == 1", "column 1: doc has shape [8]: expected 1 index, got 2");
  expect("doc == 1", "doc has shape [8]: expected 1 index, got 0");
  expect("dog[q] == 1", "unknown name \"dog\"; did you mean \"doc\"");
  expect("cat[q] == 1", "unknown name \"cat\"; a table of that name must be given");
  expect("(q < k", "expected \")\" to close the \"(\" 6 characters before");
  expect("q <", "expected a value, got the end of the text");
  expect("", "column 1: expected a value");
  expect("q < 99999999999999999999", "number out of range");
  expect("q < 4k", "expected a number such as 256 or 0.5, got \"4k\"");
  expect("min(q) < 3", "min: expected at least 2 arguments, got 1");
  expect("where(q, k, h) < 3", "where: expected a boolean as the condition, got an integer");
  expect("q ** k < 2", "expected an exponent that is a number from 0 to 63");
  expect("score & 1", "&: expected two booleans or two integers", true);
  expect("bias[score, 1]", "bias: expected integers as indices, got a float", true);
  expect("score + 1e99", "number out of the range of float32", true);
}

TEST(Expression, RefusesTablesThatCanNotBe) {
  const auto refused = [](TableDecl table) {
    EXPECT_THROW(parse_predicate("q < k", {std::move(table)}), Error);
  };
  refused({"q", DType::kInt64, {4}});
  refused({"where", DType::kInt64, {4}});
  refused({"1x", DType::kInt64, {4}});
  refused({"", DType::kInt64, {4}});
  refused({"x", DType::kFloat32, {4}});
  refused({"x", DType::kUInt8, {4}});
  EXPECT_THROW(parse_predicate("q < k", {{"x", DType::kInt64, {4}}, {"x", DType::kInt64, {4}}}),
               Error);
}

TEST(Expression, RefusesWhatIsTooDeepOrTooLong) {
  const auto repeated = [](std::string_view text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  for (const int depth : {100, 100'000}) {
    const std::string parentheses = repeated("(", depth) + "q < k" + repeated(")", depth);
    const std::string signs = repeated("~", depth) + "(q < k)";
    const std::string indices = repeated("doc[", depth) + "q" + repeated("]", depth) + " == 1";
    for (const std::string& text : {parentheses, signs, indices}) {
      if (depth == 100)
        EXPECT_EQ(predicate_text(predicate_text(text)), predicate_text(text));
      else
        EXPECT_NE(error_of(text), "no error");
    }
  }
  const std::string chain = "q" + repeated(" + k", 900) + " < 3";
  EXPECT_EQ(predicate_text(chain), chain);
  EXPECT_NE(error_of("q" + repeated(" + k", 2000) + " < 3").find("deep"), std::string::npos);
}

float score_of(std::string_view text, float score, std::int64_t q = 5, std::int64_t k = 3) {
  static const std::vector<std::int64_t> doc = {0, 0, 1, 1, 1, 2, 2, 7};
  static const bool keep[] = {true, false, true, false, true, false, true, false};
  static const std::vector<float> bias = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
  static const std::int32_t limit = 6;
  const std::vector<TensorView> views = {{doc.data(), DType::kInt64, {8}},
                                         {keep, DType::kBool, {8}},
                                         {bias.data(), DType::kFloat32, {2, 3}},
                                         {&limit, DType::kInt32, {}}};
  const Program program(parse_score(text, kTables));
  const float one = program.evaluate(views, score, 0, 1, q, k).f;
  Program::Scratch scratch;
  program.set_row(scratch, views, 0, 1, q);
  std::vector<float> many(70, score);
  program.scores(scratch, many.data(), k, 70);
  EXPECT_TRUE(many[0] == one || (std::isnan(one) && std::isnan(many[0]))) << text;
  const float last = program.evaluate(views, score, 0, 1, q, k + 69).f;
  EXPECT_TRUE(many[69] == last || (std::isnan(last) && std::isnan(many[69]))) << text;
  return one;
}

TEST(Expression, EvaluatesScores) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(score_of("score + (q - k)", 1.5f), 3.5f);
  EXPECT_EQ(score_of("where(q >= k, score, -inf)", 2, 3, 4), -kInf);
  EXPECT_EQ(score_of("bias[h, 2] + score", 1), 6.5f);
  EXPECT_EQ(score_of("bias[-1, 1] + limit", 1), 10.5f);                      // from the end
  EXPECT_EQ(score_of("bias[2, 1] + bias[-3, 0] + doc[8] + doc[-9]", 1), 0);  // outside
  EXPECT_EQ(score_of("doc[-1]", 1), 7);
  EXPECT_EQ(score_of("where(keep[k], 1, 2)", 0), 2);
  EXPECT_EQ(score_of("keep[k + 1] + 1", 0), 2);
  EXPECT_EQ(score_of("score // 2", -3), -2);
  EXPECT_EQ(score_of("score % 2", -3), 1);
  EXPECT_EQ(score_of("score ** 2", -3), 9);
  EXPECT_EQ(score_of("int(score)", -3.7f), -3);
  EXPECT_EQ(score_of("int(score)", std::nanf("")), 0);
  EXPECT_EQ(score_of("int(score) // 1000000", kInf), 9223372036854.0f);
  EXPECT_TRUE(std::isnan(score_of("min(score, 1)", std::nanf(""))));
  EXPECT_TRUE(std::isnan(score_of("max(1, score)", std::nanf(""))));
  EXPECT_EQ(score_of("sigmoid(score)", 0), 0.5f);
  EXPECT_EQ(score_of("rsqrt(score) + sqrt(score)", 4), 2.5f);
  EXPECT_EQ(score_of("(q - 5) // 0 + q % 0", 0), 0);
  EXPECT_EQ(score_of("-7 // 2 * 1.0 + (-7 % 2)", 0), -3);
  EXPECT_EQ(score_of("q << 64", 0), 0);
  EXPECT_EQ(score_of("-q >> 64", 0), -1);
  EXPECT_EQ(score_of("exp2(q - k) + log2(8)", 0), 7);
}

}  // namespace
}  // namespace stof::expr
