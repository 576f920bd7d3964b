// Packed sequences and merged states.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/attention_support.h"
#include "cpu/tolerance.h"
#include "plan/plan_support.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

using testing::HasSubstr;

AttentionProblem packed_problem() {
  AttentionProblem p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim_qk = 16;
  p.head_dim_v = 24;
  p.return_lse = true;
  return p;
}

/// Packed operands: [rows, heads, dim] inside guarded memory.
struct Packed {
  Packed(const AttentionProblem& p, std::int64_t total_q, std::int64_t total_kv)
      : q(p.dtype, {total_q, p.num_heads_q, p.head_dim_qk}),
        k(p.dtype, {total_kv, p.num_heads_kv, p.head_dim_qk}),
        v(p.dtype, {total_kv, p.num_heads_kv, p.head_dim_v}),
        out(p.dtype, {total_q, p.num_heads_q, p.head_dim_v}),
        lse(DType::kFloat32, {p.num_heads_q, total_q}),
        slopes(DType::kFloat32, {p.num_heads_q}),
        sink(DType::kFloat32, {p.num_heads_q}) {
    double x = 0;
    for (GuardedTensor* tensor : {&q, &k, &v, &slopes, &sink})
      tensor->fill([&] { return std::sin(x += 1) * 2; });
  }
  AttentionTensors tensors(const AttentionProblem& p) {
    AttentionTensors t;
    t.q = q.view(), t.k = k.view(), t.v = v.view(), t.out = out.view(), t.lse = lse.view();
    if (p.alibi) t.alibi_slopes = slopes.view();
    if (p.sink) t.sink = sink.view();
    return t;
  }
  GuardedTensor q, k, v, out, lse, slopes, sink;
};

/// Rows [first, first + rows) of a packed [rows, heads, dim] view as [1, heads, rows, dim].
template <class View>
View one_sequence(View packed, std::int64_t first, std::int64_t rows) {
  View view = packed;
  auto* data = static_cast<const char*>(packed.data) +
               first * packed.strides[0] * static_cast<std::int64_t>(dtype_bytes(packed.dtype));
  view.data = const_cast<char*>(data);
  view.shape = {1, packed.shape[1], rows, packed.shape[2]};
  view.strides = {0, packed.strides[1], packed.strides[0], 1};
  return view;
}

/// The reference, sequence by sequence; `mask_of(i)` is the mask of sequence i alone.
void run_reference(const VarlenPlan& plan, Packed& packed, const std::vector<std::int64_t>& cu_q,
                   const std::vector<std::int64_t>& cu_kv,
                   const std::function<mask::Mask(std::int64_t)>& mask_of) {
  for (std::int64_t i = 0; i < plan.num_sequences(); ++i) {
    const auto s = static_cast<std::size_t>(i);
    AttentionProblem one = plan.problem();
    one.batch = 1;
    one.seq_q = cu_q[s + 1] - cu_q[s];
    one.seq_kv = cu_kv[s + 1] - cu_kv[s];
    AttentionTensors t = packed.tensors(one);
    t.q = one_sequence(t.q, cu_q[s], one.seq_q);
    t.k = one_sequence(t.k, cu_kv[s], one.seq_kv);
    t.v = one_sequence(t.v, cu_kv[s], one.seq_kv);
    t.out = one_sequence(t.out, cu_q[s], one.seq_q);
    t.lse.data = static_cast<float*>(t.lse.data) + cu_q[s];
    t.lse.shape = {1, one.num_heads_q, one.seq_q};
    t.lse.strides = {0, t.lse.strides[0], 1};
    attention_reference(one, mask_of(i), t);
  }
}

void expect_varlen_right(const AttentionProblem& problem, const mask::Mask& mask,
                         const std::vector<std::int64_t>& cu_q,
                         const std::vector<std::int64_t>& cu_kv,
                         const std::function<mask::Mask(std::int64_t)>& mask_of) {
  const VarlenPlan plan = plan_varlen_attention(problem, mask, cu_q, cu_kv);
  Packed packed(problem, cu_q.back(), cu_kv.back());
  run_reference(plan, packed, cu_q, cu_kv, mask_of);
  const std::vector<double> out = packed.out.values(), lse = packed.lse.values();
  for (const int threads : {1, 3}) {
    packed.out.poison();
    packed.lse.poison();
    run_varlen_attention(plan, packed.tensors(problem), RunOptions{threads});
    EXPECT_TRUE(close_to(packed.out.values(), out, tolerance_of(problem.dtype)));
    EXPECT_TRUE(close_to(packed.lse.values(), lse, tolerance_of(DType::kFloat32)));
    EXPECT_TRUE(packed.out.guards_intact() && packed.lse.guards_intact());
  }
}

std::vector<std::int64_t> cumulative(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> sums = {0};
  for (const std::int64_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

RC_GTEST_PROP(VarlenAttention, AgreesWithTheReferenceSequenceBySequence, ()) {
  AttentionProblem problem = packed_problem();
  problem.dtype = *rc::gen::element(DType::kFloat32, DType::kBFloat16);
  problem.alignment = *rc::gen::element(mask::Alignment::kTopLeft, mask::Alignment::kBottomRight);
  problem.alibi = *rc::gen::arbitrary<bool>();
  problem.sink = *rc::gen::arbitrary<bool>();
  std::vector<std::int64_t> lengths_q, lengths_kv;
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
    lengths_q.push_back(*rc::gen::element<std::int64_t>(0, 1, 5, 64, 100));
    lengths_kv.push_back(*rc::gen::element<std::int64_t>(0, 1, 17, 64, 130));
  }
  const mask::Mask mask = *plan::any_mask();
  expect_varlen_right(problem, mask, cumulative(lengths_q), cumulative(lengths_kv),
                      [&](std::int64_t) { return mask; });
  RC_ASSERT(!testing::Test::HasFailure());
}

TEST(VarlenAttention, GivesEachSequenceItsBatchEntryOfTheMask) {
  const std::vector<mask::Mask> masks = {mask::causal(), mask::window(2, 2), mask::all()};
  const std::vector<std::int64_t> cu = {0, 70, 140, 150};
  expect_varlen_right(packed_problem(), mask::per_batch(masks), cu, cu,
                      [&](std::int64_t i) { return masks[static_cast<std::size_t>(i)]; });
  expect_varlen_right(packed_problem(), mask::key_lengths({50, 70, 3}), cu, cu, [](std::int64_t i) {
    return mask::key_lengths({std::vector<std::int64_t>{50, 70, 3}[static_cast<std::size_t>(i)]});
  });
}

TEST(VarlenAttention, SharesPlansOfEqualLengths) {
  const std::vector<std::int64_t> cu = {0, 70, 140, 150, 220};
  const VarlenPlan plan = plan_varlen_attention(packed_problem(), mask::causal(), cu, cu);
  EXPECT_EQ(plan.num_sequences(), 4);
  EXPECT_EQ(&plan.sequence(0), &plan.sequence(1));
  EXPECT_EQ(&plan.sequence(0), &plan.sequence(3));
  EXPECT_NE(&plan.sequence(0), &plan.sequence(2));
  EXPECT_EQ(plan.problem().batch, 4);
  EXPECT_EQ(plan.problem().seq_q, 70);
}

TEST(VarlenAttention, DescribesEveryPlanOfABatchedMask) {
  const std::vector<std::int64_t> cu = {0, 70, 140, 150};
  const VarlenPlan plan =
      plan_varlen_attention(packed_problem(), mask::key_lengths({50, 70, 3}), cu, cu);
  plan.validate();
  EXPECT_THAT(plan.describe(), HasSubstr("3 packed sequences of 150 queries and 150 keys in all"));
  const AttentionPlan& second = plan.sequence(1);
  EXPECT_THAT(second.describe(), HasSubstr("batch_entry(key_lengths([50, 70, 3]), 1)"));
  EXPECT_THAT(plan.to_json(), HasSubstr(second.fingerprint().hex()));
  // The text reads back to the mask that the sequence was planned with.
  const mask::Mask read = mask::parse(second.mask().to_text());
  EXPECT_EQ(read.fingerprint(), second.mask().fingerprint());
  EXPECT_EQ(read.visible_keys(0, 0, 5, 70).size(), 70U);
}

TEST(VarlenAttention, FingerprintFollowsLengthsAndMask) {
  const AttentionProblem problem = packed_problem();
  const std::vector<std::int64_t> cu = {0, 70, 140, 150}, other = {0, 70, 80, 150};
  const Fingerprint base = plan_varlen_attention(problem, mask::causal(), cu, cu).fingerprint();
  EXPECT_EQ(plan_varlen_attention(problem, mask::causal(), cu, cu).fingerprint(), base);
  EXPECT_NE(plan_varlen_attention(problem, mask::causal(), other, other).fingerprint(), base);
  EXPECT_NE(plan_varlen_attention(problem, mask::causal(), cu, other).fingerprint(), base);
  EXPECT_NE(plan_varlen_attention(problem, mask::causal(1), cu, cu).fingerprint(), base);
}

// Case 47: packed documents equal separate sequences.
TEST(VarlenAttention, EqualsADocumentMask) {
  AttentionProblem problem = packed_problem();
  problem.sink = true;
  const std::vector<std::int64_t> cu = {0, 30, 95, 100};
  Packed packed(problem, 100, 100);
  run_varlen_attention(plan_varlen_attention(problem, mask::all(), cu, cu),
                       packed.tensors(problem));
  const std::vector<double> expected = packed.out.values();
  AttentionProblem whole = problem;
  whole.seq_q = whole.seq_kv = 100;
  AttentionTensors t = packed.tensors(problem);
  t.q = one_sequence(t.q, 0, 100);
  t.k = one_sequence(t.k, 0, 100);
  t.v = one_sequence(t.v, 0, 100);
  t.out = one_sequence(t.out, 0, 100);
  t.lse.shape = {1, 4, 100};
  t.lse.strides = {0, t.lse.strides[0], 1};
  packed.out.poison();
  run_attention(plan_attention(whole, mask::document({30, 65, 5})), t);
  EXPECT_TRUE(close_to(packed.out.values(), expected, tolerance_of(DType::kFloat32)));
}

TEST(VarlenAttention, NamesWhatIsWrongWithTheLengths) {
  const auto message = [](const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& kv) {
    return error_of([&] { plan_varlen_attention(packed_problem(), mask::all(), q, kv); });
  };
  EXPECT_THAT(message({0}, {0, 1}), HasSubstr("cu_seqlens_q: expected at least 2 entries"));
  EXPECT_THAT(message({1, 2}, {0, 1}), HasSubstr("cu_seqlens_q[0]: expected 0, got 1"));
  EXPECT_THAT(message({0, 5, 4}, {0, 1, 2}), HasSubstr("cu_seqlens_q[2]: expected at least 5"));
  EXPECT_THAT(message({0, 1}, {0, 1, 2}), HasSubstr("cu_seqlens_kv: expected 2 entries"));
  AttentionProblem with_bias = packed_problem();
  with_bias.bias = true;
  EXPECT_THAT(error_of([&] {
                plan_varlen_attention(with_bias, mask::all(), {0, 1}, {0, 1});
              }),
              HasSubstr("bias"));
  const VarlenPlan plan = plan_varlen_attention(packed_problem(), mask::all(), {0, 5}, {0, 7});
  Packed packed(packed_problem(), 4, 7);
  EXPECT_EQ(error_of([&] { run_varlen_attention(plan, packed.tensors(packed_problem())); }),
            "q: expected shape [5, 4, 16], got [4, 4, 16]");
}

TEST(MergeAttentionStates, EqualsAttentionOverTheUnion) {
  AttentionProblem problem;
  problem.seq_q = 20;
  problem.seq_kv = 60;
  problem.head_dim_qk = problem.head_dim_v = 8;
  problem.return_lse = true;
  Operands left(problem, 9), right(problem, 9), whole(problem, 9);
  const mask::Mask first = mask::prefix(25) & mask::global(12, 0), second = ~mask::prefix(25);
  run_attention(plan_attention(problem, first), left.tensors());
  run_attention(plan_attention(problem, second), right.tensors());
  const Result expected = reference_of(first | second, whole);
  const auto flat = [](MutableTensorView view) {
    return MutableTensorView(view.data, view.dtype,
                             view.shape.rank() == 4 ? Dims{20, 8} : Dims{20});
  };
  merge_attention_states(flat(left.out.view()), flat(left.lse.view()), flat(right.out.view()),
                         flat(right.lse.view()));
  EXPECT_TRUE(close_to(left.out.values(), expected.out, tolerance_of(DType::kFloat32)));
  EXPECT_TRUE(close_to(left.lse.values(), expected.lse, tolerance_of(DType::kFloat32)));
}

// Case 3: the empty state is neutral, and two of them stay empty.
TEST(MergeAttentionStates, TreatsTheEmptyStateAsNeutral) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  std::vector<float> out_a = {0, 5, 0, 7}, lse_a = {kEmpty, 2, kEmpty, -6e4f};
  const std::vector<float> out_b = {0, 0, 9, 3}, lse_b = {kEmpty, kEmpty, 1, -6e4f};
  merge_attention_states(
      {out_a.data(), DType::kFloat32, {4, 1}}, {lse_a.data(), DType::kFloat32, {4}},
      {out_b.data(), DType::kFloat32, {4, 1}}, {lse_b.data(), DType::kFloat32, {4}});
  EXPECT_EQ(out_a, (std::vector<float>{0, 5, 9, 5}));
  EXPECT_EQ(lse_a[0], kEmpty);
  EXPECT_EQ(lse_a[1], 2);
  EXPECT_EQ(lse_a[2], 1);
  EXPECT_NEAR(lse_a[3], -6e4 + std::log(2.0), 0.01);
  EXPECT_THAT(error_of([&] {
                merge_attention_states(
                    {out_a.data(), DType::kFloat32, {4, 1}}, {lse_a.data(), DType::kFloat32, {3}},
                    {out_b.data(), DType::kFloat32, {4, 1}}, {lse_b.data(), DType::kFloat32, {4}});
              }),
              HasSubstr("lse_a: expected float32[4]"));
  EXPECT_THAT(error_of([&] {
                merge_attention_states(
                    {out_a.data(), DType::kFloat32, {2, 1}},
                    {reinterpret_cast<char*>(lse_a.data()) + 2, DType::kFloat32, {2}},
                    {out_b.data(), DType::kFloat32, {2, 1}}, {lse_b.data(), DType::kFloat32, {2}});
              }),
              HasSubstr("lse_a: expected an address that is a multiple of 4 bytes"));
}

}  // namespace
}  // namespace stof::cpu
