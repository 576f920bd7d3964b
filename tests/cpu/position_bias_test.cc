#include "backend/cpu/attention/position_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/attention_support.h"

namespace stof::cpu {
namespace {

using testing::HasSubstr;

std::vector<std::int64_t> buckets_of(const PositionBias& rule,
                                     const std::vector<std::int64_t>& distances) {
  std::vector<std::int64_t> buckets;
  for (const std::int64_t distance : distances) buckets.push_back(position_bucket(rule, distance));
  return buckets;
}

// Values of the published T5 code, which computes in float32; worked out by hand from its formula.
TEST(PositionBucket, FollowsTheirFormulaInBothDirections) {
  const PositionBias rule{32, true, 128};
  EXPECT_EQ(buckets_of(rule, {0,   -1,  -7,  -8,  -11, -12, -15, -16,  -22,  -23,    -31,
                              -32, -45, -46, -63, -64, -90, -91, -127, -128, -100000}),
            (std::vector<std::int64_t>{0,  1,  7,  8,  8,  9,  9,  10, 10, 11, 11,
                                       12, 12, 13, 13, 14, 14, 15, 15, 15, 15}));
  EXPECT_EQ(buckets_of(rule, {1, 7, 8, 16, 64, 128, 100000}),
            (std::vector<std::int64_t>{17, 23, 24, 26, 30, 31, 31}));
}

TEST(PositionBucket, GivesLaterKeysTheBucketOfDistanceZeroInCausalModels) {
  const PositionBias rule{32, false, 128};
  EXPECT_EQ(buckets_of(rule, {5, 1, 0, -1, -15, -16, -128, -1000}),
            (std::vector<std::int64_t>{0, 0, 0, 1, 15, 16, 31, 31}));
}

AttentionProblem problem_of(std::int64_t seq_q, std::int64_t seq_kv, mask::Alignment alignment,
                            const PositionBias& rule) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = 8;
  p.alignment = alignment;
  p.position_bias = rule;
  p.return_lse = true;
  return p;
}

TEST(PositionBiasAttention, IsRightInEveryPath) {
  for (const auto alignment : {mask::Alignment::kTopLeft, mask::Alignment::kBottomRight})
    for (const PositionBias& rule : {PositionBias{32, true, 20}, PositionBias{9, false, 128}}) {
      AttentionProblem problem = problem_of(130, 70, alignment, rule);
      Operands wide(problem, 3);
      expect_right_everywhere(mask::window(40, 40), wide);
      problem = problem_of(1, 200, alignment, rule);
      problem.alibi = problem.sink = true;
      problem.softcap = 5;
      Operands row(problem, 4);
      expect_right_everywhere(mask::all(), row);
    }
}

TEST(PositionBiasAttention, KnowsTheLengthsOfPackedSequences) {
  for (const auto alignment : {mask::Alignment::kTopLeft, mask::Alignment::kBottomRight}) {
    AttentionProblem problem = problem_of(90, 120, alignment, {16, true, 30});
    problem.batch = 1;
    Operands operands(
        problem, 5,
        {Layout::kRowsFirst, Layout::kRowsFirst, Layout::kRowsFirst, Layout::kRowsFirst});
    const std::vector<std::int64_t> cu_q = {0, 50, 50, 90}, cu_kv = {0, 30, 31, 120};
    const auto rows = [](auto view, std::int64_t first, std::int64_t count) {
      const auto bytes = static_cast<std::int64_t>(dtype_bytes(view.dtype));
      view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<std::intptr_t>(view.data) +
                                                        first * view.strides[2] * bytes);
      view.shape[2] = count;
      return view;
    };
    operands.out.poison();
    operands.lse.poison();
    for (std::size_t i = 0; i + 1 < cu_q.size(); ++i) {
      AttentionProblem one = problem;
      one.seq_q = cu_q[i + 1] - cu_q[i];
      one.seq_kv = cu_kv[i + 1] - cu_kv[i];
      AttentionTensors t = operands.tensors();
      t.q = rows(t.q, cu_q[i], one.seq_q);
      t.k = rows(t.k, cu_kv[i], one.seq_kv);
      t.v = rows(t.v, cu_kv[i], one.seq_kv);
      t.out = rows(t.out, cu_q[i], one.seq_q);
      t.lse = rows(t.lse, cu_q[i], one.seq_q);
      attention_reference(one, mask::causal(), t);
    }
    const std::vector<double> out = operands.out.values(), lse = operands.lse.values();

    const auto packed = [](auto view) {
      view.shape = {view.shape[2], view.shape[1], view.shape[3]};
      view.strides = {view.strides[2], view.strides[1], view.strides[3]};
      return view;
    };
    AttentionTensors t = operands.tensors();
    t.q = packed(t.q), t.k = packed(t.k), t.v = packed(t.v), t.out = packed(t.out);
    t.lse = {t.lse.data, t.lse.dtype, {t.lse.shape[1], t.lse.shape[2]}};
    operands.out.poison();
    operands.lse.poison();
    run_varlen_attention(plan_varlen_attention(problem, mask::causal(), cu_q, cu_kv), t);
    EXPECT_THAT(operands.out.values(), testing::Pointwise(testing::DoubleNear(1e-5), out));
    for (std::size_t i = 0; i < lse.size(); ++i)
      if (std::isfinite(lse[i]))
        EXPECT_NEAR(operands.lse.values()[i], lse[i], 1e-5) << i;
      else
        EXPECT_EQ(operands.lse.values()[i], lse[i]) << i;
  }
}

TEST(PositionBiasAttention, RefusesByName) {
  AttentionProblem p = problem_of(4, 4, mask::Alignment::kTopLeft, {32, true, 128});
  const auto message = [&] { return error_of([&] { p.validate(); }); };
  EXPECT_EQ(message(), "no error");
  p.position_bias.num_buckets = 7;
  EXPECT_THAT(message(),
              HasSubstr("position_bias.num_buckets: expected 0 (none) or an even number"));
  p.position_bias = {32, true, 8};
  EXPECT_THAT(message(), HasSubstr("position_bias.max_distance: expected 9 to"));
  p.position_bias = {32, true, 128};
  p.bias = true;
  EXPECT_THAT(message(), HasSubstr("expected none beside bias = true"));
  p.bias = false;
  Operands operands(p, 1);
  AttentionTensors t = operands.tensors();
  t.position_bias.shape[0] = 31;
  EXPECT_THAT(error_of([&] { attention_reference(p, mask::all(), t); }),
              HasSubstr("position_bias: expected shape [32, 4], got [31, 4]"));
  p.position_bias = {};
  EXPECT_THAT(error_of([&] { attention_reference(p, mask::all(), operands.tensors()); }),
              HasSubstr("position_bias: expected no tensor"));
}

}  // namespace
}  // namespace stof::cpu
