// Score modifications: problem, operands and every way to run them on the CPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/attention/element.h"
#include "cpu/attention_support.h"
#include "cpu/score_mods.h"
#include "cpu/tolerance.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

using testing::HasSubstr;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

AttentionProblem small_problem() {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = 37;
  p.seq_kv = 70;
  p.head_dim_qk = 8;
  p.head_dim_v = 5;
  p.return_lse = true;
  return p;
}

TEST(ScoreMod, AgreesWithTheReferenceInEveryKernel) {
  for (int which = 0; which < kNumScoreMods; ++which) {
    AttentionProblem p = small_problem();
    p.alignment = which % 2 ? mask::Alignment::kBottomRight : mask::Alignment::kTopLeft;
    p.dtype = which % 3 == 2 ? DType::kFloat16 : DType::kFloat32;
    p.softcap = which % 4 == 1 ? 5.0f : 0.0f;
    p.alibi = which % 3 == 1;
    p.bias = which % 4 == 2;
    p.sink = which % 2 == 1;
    set_score_mod(&p, which);
    Operands operands(p, static_cast<std::uint64_t>(which) * 3 + 1);
    const mask::Mask mask =
        which % 3 == 0 ? mask::all() : mask::causal() & mask::random_elements(0.7, 5);
    plan::PlanConfig config = choose_config(p);
    if (which % 2) config.tile_q = 32, config.tile_kv = 64, config.max_tiles_per_split = 1;
    expect_right_everywhere(mask, operands, config);
  }
}

/// softmax over f(score, b, h, q, k), written out.
void expect_function(const AttentionProblem& p, Operands& operands,
                     const std::function<double(double, std::int64_t, std::int64_t, std::int64_t,
                                                std::int64_t)>& f) {
  const AttentionTensors t = operands.tensors();
  const auto close = [&](const char* what, const std::function<void()>& run) {
    operands.out.poison();
    run();
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        for (std::int64_t q = 0; q < p.seq_q; ++q) {
          double sum = 0;
          std::vector<double> out(static_cast<std::size_t>(p.head_dim_v));
          for (std::int64_t k = 0; k < p.seq_kv; ++k) {
            double dot = 0;
            for (std::int64_t d = 0; d < p.head_dim_qk; ++d)
              dot += load_element(t.q, {b, h, q, d}) * load_element(t.k, {b, h / 2, k, d});
            const double weight = std::exp(f(dot / std::sqrt(8.0), b, h, q + 33, k));
            sum += weight;
            for (std::int64_t d = 0; d < p.head_dim_v; ++d)
              out[static_cast<std::size_t>(d)] += weight * load_element(t.v, {b, h / 2, k, d});
          }
          for (std::int64_t d = 0; d < p.head_dim_v; ++d)
            ASSERT_NEAR(load_element(t.out, {b, h, q, d}),
                        sum == 0 ? 0 : out[static_cast<std::size_t>(d)] / sum, 2e-5)
                << what << " of " << p.score_mod;
        }
  };
  close("the reference", [&] { attention_reference(p, mask::all(), t); });
  close("the kernel", [&] { run_attention(plan_attention(p, mask::all()), t); });
}

TEST(ScoreMod, IsTheFunctionThatItsTextSays) {
  AttentionProblem p = small_problem();
  p.alignment = mask::Alignment::kBottomRight;  // 33 more keys than queries
  p.return_lse = false;
  set_score_mod(&p, 3);
  Operands relative(p, 5);  // with gaps
  const TensorView rel = relative.score_tables[0].view();
  expect_function(p, relative, [&](double s, auto, auto, std::int64_t q, std::int64_t k) {
    std::int64_t i = q - k + 50;
    if (i < 0) i += 101;
    return s + (i >= 0 && i < 101 ? load_element(rel, {i}) : 0);
  });
  set_score_mod(&p, 7);
  Operands documents(p, 6);  // backwards
  const TensorView doc = documents.score_tables[0].view();
  expect_function(
      p, documents, [&](double s, std::int64_t b, auto, std::int64_t q, std::int64_t k) {
        return load_element(doc, {b, q}) == load_element(doc, {b, k}) + 1 ? s : -kInfinity;
      });
  set_score_mod(&p, 6);
  Operands gains(p, 7);  // one batch entry for all
  const TensorView gain = gains.score_tables[0].view(), shift = gains.score_tables[1].view();
  EXPECT_EQ(gain.strides[0], 0);
  expect_function(p, gains, [&](double s, std::int64_t b, std::int64_t h, auto, auto) {
    return s * load_element(gain, {b, h}) + load_element(shift, {});
  });
}

TEST(ScoreMod, SeesTheValuesThatTablesHaveWhenItRuns) {
  AttentionProblem p = small_problem();
  p.return_lse = false;
  set_score_mod(&p, 1);
  Operands operands(p, 4);
  const AttentionPlan plan = plan_attention(p, mask::causal());
  for (int change = 0; change < 2; ++change) {
    operands.score_tables[0].fill([&] { return change - 0.3; });
    const Result expected = reference_of(mask::causal(), operands);
    operands.out.poison();
    run_attention(plan, operands.tensors());
    EXPECT_TRUE(close_to(operands.out.values(), expected.out, tolerance_of(p.dtype)));
  }
}

TEST(ScoreMod, HidesWhatABiasHidesAndWhatItSetsToMinusInfinity) {
  AttentionProblem p = small_problem();
  p.batch = p.num_heads_q = p.num_heads_kv = 1;
  p.bias = true;
  p.score_mod = "where(k < 3, 1, where(q < 4, -inf, 0))";
  Operands operands(p, 1, {}, {1, p.seq_kv});
  std::int64_t key = 0;
  operands.bias.fill([&] { return key++ < 3 ? -kInfinity : 0.0; });
  expect_right_everywhere(mask::all(), operands);
  const auto lse = operands.lse.values();
  EXPECT_EQ(lse[3], -kInfinity);  // keys 0 to 2 stay hidden, the function hides the others
  EXPECT_NEAR(lse[4], std::log(67.0), 1e-5);
}

TEST(ScoreMod, CarriesNotANumberToItsRowsAlone) {
  AttentionProblem p = small_problem();
  p.return_lse = false;
  p.score_mod = "where((q == 2) & (k == 5), log(-1.0), score)";
  Operands operands(p, 1);
  run_attention(plan_attention(p, mask::causal()), operands.tensors());
  for (const double x : operands.out.values()) EXPECT_FALSE(std::isnan(x));  // 2 does not see 5
  run_attention(plan_attention(p, mask::all()), operands.tensors());
  const AttentionTensors t = operands.tensors();
  for (std::int64_t q = 0; q < p.seq_q; ++q)
    EXPECT_EQ(std::isnan(load_element(t.out, {1, 2, q, 3})), q == 2);
}

TEST(ScoreMod, CountsPackedSequencesAsBatchEntries) {
  const std::vector<std::int64_t> cu_q = {0, 9, 9, 40, 49}, cu_kv = {0, 20, 25, 60, 80};
  for (const int which : {6, 7, 11}) {
    AttentionProblem p = small_problem();
    p.batch = 4;
    p.seq_q = 31, p.seq_kv = 35;
    set_score_mod(&p, which);
    p.alignment = mask::Alignment::kBottomRight;
    AttentionProblem all = p;
    all.batch = 1, all.seq_q = 49, all.seq_kv = 80;
    Operands operands(
        all, 3, {Layout::kRowsFirst, Layout::kRowsFirst, Layout::kRowsFirst, Layout::kRowsFirst});
    const auto rows = [](auto view, std::int64_t first, std::int64_t count) {
      auto* data = static_cast<const char*>(view.data) +
                   first * view.strides[2] * static_cast<std::int64_t>(dtype_bytes(view.dtype));
      view.data = const_cast<char*>(data);
      view.shape[2] = count;
      return view;
    };
    for (std::size_t i = 0; i < 4; ++i) {
      AttentionProblem one = p;
      one.batch = 1, one.seq_q = cu_q[i + 1] - cu_q[i], one.seq_kv = cu_kv[i + 1] - cu_kv[i];
      const auto tables = one.score_tables;
      set_score_mod(&one, which, "(b + " + std::to_string(i) + ")");
      one.score_tables = tables;
      AttentionTensors t = operands.tensors();
      t.q = rows(t.q, cu_q[i], one.seq_q), t.out = rows(t.out, cu_q[i], one.seq_q);
      t.k = rows(t.k, cu_kv[i], one.seq_kv), t.v = rows(t.v, cu_kv[i], one.seq_kv);
      t.lse = rows(t.lse, cu_q[i], one.seq_q);
      attention_reference(one, mask::causal(), t);
    }
    const auto out = operands.out.values(), lse = operands.lse.values();
    operands.out.poison();
    operands.lse.poison();
    AttentionTensors t = operands.tensors();
    const auto packed = [](auto view) {
      view.shape = {view.shape[2], view.shape[1], view.shape[3]};
      view.strides = {view.strides[2], view.strides[1], view.strides[3]};
      return view;
    };
    t.q = packed(t.q), t.k = packed(t.k), t.v = packed(t.v), t.out = packed(t.out);
    t.lse.shape = {4, 49}, t.lse.strides = {49, 1};
    run_varlen_attention(plan_varlen_attention(p, mask::causal(), cu_q, cu_kv), t);
    EXPECT_TRUE(close_to(operands.out.values(), out, tolerance_of(p.dtype))) << p.score_mod;
    EXPECT_TRUE(close_to(operands.lse.values(), lse, tolerance_of(DType::kFloat32)));
  }
}

TEST(ScoreMod, IsPartOfThePlan) {
  AttentionProblem p = small_problem();
  const auto plain = plan_attention(p, mask::causal());
  set_score_mod(&p, 3);
  const auto plan = plan_attention(p, mask::causal());
  EXPECT_NE(plan.fingerprint().hex(), plain.fingerprint().hex());
  EXPECT_THAT(plan.describe(), HasSubstr("score_mod \"score + rel[q - k + 50]\""));
  EXPECT_THAT(plan.to_json(), HasSubstr("\"score_mod\":\"score + rel["));
  EXPECT_THAT(plan.to_json(), HasSubstr("\"name\":\"rel\",\"dtype\":\"float16\",\"shape\":[101]"));
  EXPECT_EQ(plain.to_json().find("score_mod"), std::string::npos);
  p.score_mod = "(score + rel[((q - k) + 50)])";
  EXPECT_EQ(plan_attention(p, mask::causal()).fingerprint().hex(), plan.fingerprint().hex());
  p.score_tables[0].shape = {102};
  EXPECT_NE(plan_attention(p, mask::causal()).fingerprint().hex(), plan.fingerprint().hex());
}

TEST(ScoreMod, RefusesWhatCannotWork) {
  AttentionProblem p = small_problem();
  const auto problem_error = [&] { return error_of([&] { p.validate(); }); };
  p.score_mod = "score + rel[q - k]";
  EXPECT_THAT(problem_error(), HasSubstr("attention problem score_mod: "));
  EXPECT_THAT(problem_error(), HasSubstr("rel"));
  p.score_mod.clear();
  p.score_tables = {{"rel", DType::kFloat16, {101}}};
  EXPECT_THAT(problem_error(), HasSubstr("score_tables: expected none beside an empty score_mod"));
  p.score_mod = "score";
  for (int i = 0; i < 16; ++i)
    p.score_tables.push_back({"t" + std::to_string(i), DType::kFloat32, {1}});
  EXPECT_THAT(problem_error(), HasSubstr("score_tables: expected at most 16, got 17"));

  set_score_mod(&p, 3);
  Operands operands(p, 1);
  const auto run_error = [&](const std::function<void(AttentionTensors*)>& change) {
    AttentionTensors t = operands.tensors();
    change(&t);
    return error_of([&] { run_attention(plan_attention(p, mask::all()), t); });
  };
  EXPECT_EQ(run_error([](auto* t) { t->score_tables.clear(); }),
            "score_tables: expected 1 as the plan's problem declares, got 0");
  EXPECT_EQ(run_error([](auto* t) { t->score_tables[0].dtype = DType::kFloat32; }),
            "score table rel: expected dtype float16, got float32");
  EXPECT_EQ(run_error([](auto* t) { t->score_tables[0].shape = {100}; }),
            "score table rel: expected shape [101], got [100]");
  EXPECT_THAT(run_error([](auto* t) { t->out.data = const_cast<void*>(t->score_tables[0].data); }),
              HasSubstr("score table rel"));
  p.score_mod.clear();
  p.score_tables.clear();
  EXPECT_EQ(run_error([](auto*) {}),
            "score_tables: expected 0 as the plan's problem declares, got 1");
}

}  // namespace
}  // namespace stof::cpu
