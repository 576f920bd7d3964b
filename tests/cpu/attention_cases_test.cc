// Inputs that broke other systems, run through reference, interpreter and every kernel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/attention_support.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

using mask::Alignment;
constexpr double kInf = std::numeric_limits<double>::infinity();

AttentionProblem problem_of(std::int64_t seq_q, std::int64_t seq_kv, std::int64_t dim = 64) {
  AttentionProblem p;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = dim;
  p.return_lse = true;
  return p;
}

/// Runs the default fast path and returns its results.
Result run(const mask::Mask& mask, Operands& operands) {
  operands.out.poison();
  operands.lse.poison();
  run_attention(plan_attention(operands.problem, mask), operands.tensors());
  return {operands.out.values(),
          operands.lse.defined() ? operands.lse.values() : std::vector<double>()};
}

void expect_empty_row(const Result& result, std::int64_t row, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d)
    ASSERT_EQ(result.out[static_cast<std::size_t>(row * dim + d)], 0);
  ASSERT_EQ(result.lse[static_cast<std::size_t>(row)], -kInf);
}

// Case 1: rows that see nothing.
TEST(AttentionCases, GiveZeroAndMinusInfinityForRowsThatSeeNothing) {
  mask::BlockList corner;
  corner.block_q = corner.block_kv = 4;
  corner.heads = {{{0}, {}}};
  Operands operands(problem_of(8, 8, 8), 1);
  expect_right_everywhere(mask::block_list(corner), operands);
  const Result result = run(mask::block_list(corner), operands);
  for (std::int64_t row = 4; row < 8; ++row) expect_empty_row(result, row, 8);
  for (std::int64_t row = 0; row < 4; ++row)
    EXPECT_TRUE(std::isfinite(result.lse[static_cast<std::size_t>(row)]));
}

// Case 2: a bias row at -3.4e38 is finite, so it means equal weights; -inf hides.
TEST(AttentionCases, TreatTheLowestFiniteBiasAsEqualWeightsAndMinusInfinityAsHidden) {
  AttentionProblem problem = problem_of(2, 100, 16);
  problem.bias = true;
  Operands operands(problem, 2, {}, {2, 100});
  std::int64_t i = 0;
  operands.bias.fill([&] { return i++ < 100 ? -3.4e38 : -kInf; });
  expect_right_everywhere(mask::all(), operands);
  const Result result = run(mask::all(), operands);
  const std::vector<double> v = operands.v.values();
  for (std::size_t d = 0; d < 16; ++d) {
    double mean = 0;
    for (std::size_t k = 0; k < 100; ++k) mean += v[k * 16 + d] / 100;
    EXPECT_NEAR(result.out[d], mean, 1e-6);
  }
  expect_empty_row(result, 1, 16);
}

// Case 3: bottom-right causal with more queries than keys; very negative logits are not a mask.
TEST(AttentionCases, KeepRowsWithVeryNegativeLogits) {
  AttentionProblem problem = problem_of(8, 4, 8);
  problem.alignment = Alignment::kBottomRight;
  problem.scale = 1;
  Operands operands(problem, 3);
  operands.q.fill([] { return -60000.0 / 8; });
  operands.k.fill([] { return 1.0; });
  expect_right_everywhere(mask::causal(), operands);
  const Result result = run(mask::causal(), operands);
  for (std::int64_t row = 0; row < 4; ++row) expect_empty_row(result, row, 8);
  for (std::size_t row = 4; row < 8; ++row)
    EXPECT_NEAR(result.lse[row], -60000 + std::log(static_cast<double>(row - 3)), 0.01);
}

// Case 4: a row that sees nothing in the first tile listed for it.
TEST(AttentionCases, StartRowsInALaterTile) {
  Operands operands(problem_of(128, 256), 4);
  expect_right_everywhere(mask::window(0, 0) | mask::shifted(mask::causal(), 0, -128), operands);
  expect_right_everywhere(mask::shifted(mask::causal(), 0, -128), operands);
}

// Case 5: tails of one key and one query, and a transposed cache read in the middle.
TEST(AttentionCases, HandleTails) {
  for (const auto& [seq_q, seq_kv] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{129, 129}, {1, 137}, {137, 137}}) {
    Operands operands(problem_of(seq_q, seq_kv), 5);
    expect_right_everywhere(mask::causal(), operands);
  }
  Operands one(problem_of(1, 300), 5,
               {Layout::kContiguous, Layout::kRowsFirst, Layout::kRowsFirst});
  expect_right_everywhere(mask::shifted(mask::window(0, 99), 128, 0), one);
}

// Case 5: the long one; D=64 causal with one row and one key past a multiple of every tile.
TEST(AttentionCases, HandleTheTailOfALongCausalProblem) {
  Operands operands(problem_of(1025, 1025), 5);
  const Result expected = reference_of(mask::causal(), operands);
  const Result result = run(mask::causal(), operands);
  for (std::size_t i = 0; i < expected.out.size(); ++i)
    ASSERT_NEAR(result.out[i], expected.out[i], 1e-5);
}

// Case 6: padding past the last key weighs exactly 0 even where all real logits are negative.
TEST(AttentionCases, GivePaddingNoWeight) {
  AttentionProblem problem = problem_of(3, 64 * 5 + 1, 16);
  problem.scale = 1;
  Operands operands(problem, 6);
  operands.q.fill([] { return 5.0; });
  operands.k.fill([] { return -5.0; });  // logits of -400: padding at 0 would win
  operands.v.fill([] { return 2.0; });
  expect_right_everywhere(mask::all(), operands);
  for (const double x : run(mask::all(), operands).out) EXPECT_NEAR(x, 2.0, 5e-7);
}

/// K or V that is NaN or infinite where nothing sees it must not be felt (an unwritten cache).
TEST(AttentionCases, IgnoreWhatHiddenKeysHold) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    AttentionProblem problem = problem_of(70, 150, 16);
    problem.dtype = dtype;
    Operands operands(problem, 7);
    std::int64_t i = 0;
    const auto spoil = [&] {
      const std::int64_t key = i++ / 16 % 150;
      return key >= 100 ? (key % 2 ? kInf : std::nan("")) : std::sin(static_cast<double>(i));
    };
    operands.k.fill(spoil);
    i = 0;
    operands.v.fill(spoil);
    expect_right_everywhere(mask::key_lengths({100}), operands);
  }
}

// Case 12: k and v of stride 0, a slice of a longer cache, and q, k, v cut from one tensor.
TEST(AttentionCases, ReadAnyStrides) {
  AttentionProblem problem = problem_of(150, 150, 32);
  problem.batch = 2;
  problem.num_heads_q = problem.num_heads_kv = 2;
  for (const Layout layout : {Layout::kExpandedRows, Layout::kExpandedBatch, Layout::kSliced}) {
    Operands operands(problem, 12, {Layout::kRowsFirst, layout, layout, Layout::kSliced});
    expect_right_everywhere(mask::window(20, 20), operands);
  }
}

TEST(AttentionCases, ReadQueriesKeysAndValuesCutFromOneTensor) {
  AttentionProblem problem = problem_of(100, 100, 64);
  problem.num_heads_q = 4;
  problem.num_heads_kv = 2;
  Operands operands(problem, 13);
  Tensor fused(DType::kFloat32, {100, 1, 4 + 2 * 2, 64});
  float value = 0;
  for (float& x : fused.as<float>()) x = std::sin(value += 1);
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    return TensorView(fused.as<float>().data() + first * 64, DType::kFloat32, {1, heads, 100, 64},
                      {8 * 64, 64, 8 * 64, 1});
  };
  AttentionTensors tensors = operands.tensors();
  tensors.q = part(0, 4);
  tensors.k = part(4, 2);
  tensors.v = part(6, 2);
  attention_reference(problem, mask::causal(), tensors);
  const std::vector<double> expected = operands.out.values();
  operands.out.poison();
  run_attention(plan_attention(problem, mask::causal()), tensors);
  const std::vector<double> actual = operands.out.values();
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5);
}

// Case 13: block lists without a predicate, S = 1024.
TEST(AttentionCases, HonourBlockLists) {
  mask::BlockList list;
  list.block_q = list.block_kv = 256;
  list.heads = {{{0, 2}, {1, 3}, {0, 3}, {2, 3}}};
  Operands operands(problem_of(1024, 1024, 8), 13);
  expect_right_everywhere(mask::block_list(list), operands);
}

// Case 15: block sizes against head dimensions.
TEST(AttentionCases, TakeBlocksOfAnySizeWithAnyHeadDimension) {
  for (const std::int64_t dim : {64, 128, 192, 256, 512})
    for (const std::int64_t block : {16, 96, 128}) {
      mask::BlockList list;
      list.block_q = block;
      list.block_kv = 64;
      list.heads.resize(1);
      for (std::int64_t row = 0; row * block < 200; ++row)
        list.heads[0].push_back({static_cast<std::int32_t>(row % 4)});
      Operands operands(problem_of(200, 200, dim), 15);
      expect_right_everywhere(mask::block_list(list), operands);
    }
}

// Case 20: both alignments, more keys than queries and the other way round.
TEST(AttentionCases, AlignQueriesEitherWay) {
  for (const Alignment alignment : {Alignment::kTopLeft, Alignment::kBottomRight})
    for (const auto& [seq_q, seq_kv] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 5}, {5, 2}}) {
      AttentionProblem problem = problem_of(seq_q, seq_kv, 8);
      problem.alignment = alignment;
      problem.alibi = true;
      Operands operands(problem, 20);
      expect_right_everywhere(mask::causal(), operands);
      const Result result = run(mask::causal(), operands);
      if (alignment == Alignment::kBottomRight && seq_q > seq_kv)
        for (std::int64_t row = 0; row < 3; ++row) expect_empty_row(result, row, 8);
    }
}

/// Row `row` of `result` is softmax attention over exactly `keys`, worked out here.
void expect_row_over(Operands& operands, const Result& result, std::int64_t b, std::int64_t row,
                     const std::vector<std::int64_t>& keys) {
  const AttentionProblem& p = operands.problem;
  const std::vector<double> q = operands.q.values(), k = operands.k.values(),
                            v = operands.v.values();
  const auto at = [](const std::vector<double>& values, std::int64_t r, std::int64_t dim,
                     std::int64_t d) { return values[static_cast<std::size_t>(r * dim + d)]; };
  std::vector<double> out(static_cast<std::size_t>(p.head_dim_v), 0);
  double sum = 0;
  for (const std::int64_t key : keys) {
    double score = 0;
    for (std::int64_t d = 0; d < p.head_dim_qk; ++d)
      score +=
          at(q, b * p.seq_q + row, p.head_dim_qk, d) * at(k, b * p.seq_kv + key, p.head_dim_qk, d);
    const double weight = std::exp(score / std::sqrt(static_cast<double>(p.head_dim_qk)));
    sum += weight;
    for (std::int64_t d = 0; d < p.head_dim_v; ++d)
      out[static_cast<std::size_t>(d)] += weight * at(v, b * p.seq_kv + key, p.head_dim_v, d);
  }
  for (std::int64_t d = 0; d < p.head_dim_v; ++d)
    EXPECT_NEAR(at(result.out, b * p.seq_q + row, p.head_dim_v, d),
                out[static_cast<std::size_t>(d)] / sum, 1e-5)
        << "batch entry " << b << " row " << row;
}

// Case 38: two sequences packed by position ids, under a padding mask of ones.
TEST(AttentionCases, KeepPackedSequencesApartUnderAPaddingMaskOfOnes) {
  const std::vector<std::int64_t> position_ids = {0, 1, 2, 0, 1, 2, 3, 4};
  std::vector<std::int64_t> lengths;
  for (const std::int64_t position : position_ids) {
    if (position == 0) lengths.push_back(0);
    ++lengths.back();
  }
  const std::vector<std::uint8_t> ones(8, 1);
  const mask::Mask mask = mask::causal() & mask::document(lengths) &
                          mask::dense(TensorView(ones.data(), DType::kBool, {1, 1, 1, 8}));
  Operands operands(problem_of(8, 8, 8), 38);
  expect_right_everywhere(mask, operands);
  const Result result = run(mask, operands);
  expect_row_over(operands, result, 0, 2, {0, 1, 2});
  expect_row_over(operands, result, 0, 4, {3, 4});
  expect_row_over(operands, result, 0, 7, {3, 4, 5, 6, 7});
}

// Case 39: key masks with holes are gathered, not counted.
TEST(AttentionCases, GatherTheKeysOfAKeyMaskWithHoles) {
  const std::vector<std::uint8_t> visible = {1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1};
  const mask::Mask mask = mask::dense(TensorView(visible.data(), DType::kBool, {2, 1, 1, 8}));
  AttentionProblem problem = problem_of(5, 8, 8);
  problem.batch = 2;
  Operands operands(problem, 39);
  expect_right_everywhere(mask, operands);
  const Result result = run(mask, operands);
  for (std::int64_t row = 0; row < 5; ++row) {
    expect_row_over(operands, result, 0, row, {0, 1, 4, 5, 7});
    expect_row_over(operands, result, 1, row, {3, 4, 5, 6, 7});
  }
}

// Case 40: cross-attention over valid keys.
TEST(AttentionCases, AttendAcrossToValidKeysOnly) {
  AttentionProblem problem = problem_of(64, 10, 16);
  problem.batch = 2;
  Operands operands(problem, 40);
  expect_right_everywhere(mask::key_lengths({6, 4}), operands);
}

// Case 47: a sink logit takes its share, never of an empty row.
TEST(AttentionCases, LetTheSinkJoinTheDenominator) {
  AttentionProblem problem = problem_of(2, 2, 8);
  problem.sink = true;
  Operands operands(problem, 47);
  operands.q.fill([] { return 0.0; });
  operands.sink.fill([] { return 0.0; });
  std::int64_t i = 0;
  operands.v.fill([&] { return i++ < 8 ? 3.0 : 6.0; });
  const mask::Mask first_row_only = mask::global(1, 0);
  expect_right_everywhere(first_row_only, operands);
  Result result = run(first_row_only, operands);
  EXPECT_NEAR(result.out[0], 3.0, 1e-6);  // 3/3 + 6/3
  EXPECT_NEAR(result.lse[0], std::log(3.0), 1e-6);
  expect_empty_row(result, 1, 8);
  operands.sink.fill([] { return -kInf; });
  expect_right_everywhere(first_row_only, operands);
  result = run(first_row_only, operands);
  EXPECT_NEAR(result.out[0], 4.5, 1e-6);
}

// Case 48: softcap with raw scores of +-200.
TEST(AttentionCases, CapLargeScores) {
  AttentionProblem problem = problem_of(40, 90, 4);
  problem.softcap = 50;
  problem.scale = 1;
  Operands operands(problem, 48);
  operands.q.fill([] { return 10.0; });
  std::int64_t i = 0;
  operands.k.fill([&] { return i++ / 4 % 2 ? 5.0 : -5.0; });
  expect_right_everywhere(mask::all(), operands);
  EXPECT_NEAR(run(mask::all(), operands).lse[0], 50 * std::tanh(4.0) + std::log(45.0), 1e-4);
}

TEST(AttentionCases, HandleExtentsOfZero) {
  AttentionProblem no_keys = problem_of(5, 0, 8);
  Operands operands(no_keys, 50);
  expect_right_everywhere(mask::all(), operands);
  for (std::int64_t row = 0; row < 5; ++row) expect_empty_row(run(mask::all(), operands), row, 8);
  Operands no_queries(problem_of(0, 5, 8), 51);
  run_attention(plan_attention(no_queries.problem, mask::all()), no_queries.tensors());
  EXPECT_TRUE(no_queries.out.guards_intact());
  AttentionProblem strided = problem_of(0, 5, 8);  // a stride of 0 has nothing to overlap here
  strided.batch = strided.num_heads_q = 2;
  Operands rows_first(strided, 52, {{}, {}, {}, Layout::kRowsFirst});
  run_attention(plan_attention(strided, mask::all()), rows_first.tensors());
  EXPECT_TRUE(rows_first.out.guards_intact());
}

TEST(AttentionCases, LetNaNReachItsRowOnly) {
  Operands operands(problem_of(30, 40, 8), 52);
  std::int64_t i = 0;
  operands.q.fill([&] { return i++ / 8 == 3 ? std::nan("") : 0.25; });
  expect_right_everywhere(mask::all(), operands);
}

}  // namespace
}  // namespace stof::cpu
