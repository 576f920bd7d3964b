// What run_attention() refuses, and what it says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cpu/attention_support.h"
#include "stof/error.h"

namespace stof::cpu {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kFar = std::int64_t{1} << 62;  // a stride whose bytes pass 64 bits

AttentionProblem problem_of(std::int64_t seq) {
  AttentionProblem p;
  p.seq_q = p.seq_kv = seq;
  p.head_dim_qk = p.head_dim_v = 8;
  return p;
}

TEST(AttentionProblem, ValidateNamesTheField) {
  const std::vector<std::pair<const char*, std::function<void(AttentionProblem&)>>> faults = {
      {"batch: expected 1", [](auto& p) { p.batch = 0; }},
      {"num_heads_kv: expected a divisor of num_heads_q = 4, got 3",
       [](auto& p) { p.num_heads_q = 4, p.num_heads_kv = 3; }},
      {"batch * num_heads_q: expected at most 2147483647, got 65536 * 65536",
       [](auto& p) { p.batch = p.num_heads_q = 65536; }},
      {"seq_q", [](auto& p) { p.seq_q = -1; }},
      {"seq_kv", [](auto& p) { p.seq_kv = std::int64_t{1} << 31; }},
      {"head_dim_qk: expected 1 to 512, got 0", [](auto& p) { p.head_dim_qk = 0; }},
      {"head_dim_v: expected 1 to 512, got 513", [](auto& p) { p.head_dim_v = 513; }},
      {"dtype: expected float32, float16 or bfloat16, got float64",
       [](auto& p) { p.dtype = DType::kFloat64; }},
      {"scale", [](auto& p) { p.scale = INFINITY; }},
      {"softcap", [](auto& p) { p.softcap = -1; }},
  };
  for (const auto& [message, change] : faults) {
    AttentionProblem problem = problem_of(4);
    change(problem);
    EXPECT_THAT(error_of([&] { problem.validate(); }), HasSubstr(message));
    EXPECT_THAT(error_of([&] { plan_attention(problem, mask::all()); }), HasSubstr(message));
  }
}

// Case 21: a plan for another length is refused, naming both.
TEST(AttentionCheck, RefusesTensorsOfAnotherLength) {
  const AttentionPlan plan = plan_attention(problem_of(8192), mask::causal());
  Operands operands(problem_of(1024), 1);
  EXPECT_EQ(error_of([&] { run_attention(plan, operands.tensors()); }),
            "q: expected shape [1, 1, 8192, 8], got [1, 1, 1024, 8]");
}

TEST(AttentionCheck, NamesEveryMismatch) {
  AttentionProblem problem = problem_of(16);
  problem.batch = 2;
  const AttentionPlan plan = plan_attention(problem, mask::causal());
  Operands operands(problem, 1);
  Tensor other(DType::kFloat32, {16});
  const std::vector<std::pair<const char*, std::function<void(AttentionTensors&)>>> faults = {
      {"k: expected float32[2, 1, 16, 8], got no tensor", [](auto& t) { t.k = {}; }},
      {"v: expected dtype float32, got float16", [](auto& t) { t.v.dtype = DType::kFloat16; }},
      {"q: expected rank 4 (shape [2, 1, 16, 8]), got rank 1 (shape [16])",
       [&](auto& t) { t.q = other.view(); }},
      {"out: expected shape [2, 1, 16, 8], got [2, 1, 16, 4]", [](auto& t) { t.out.shape[3] = 4; }},
      {"k: expected a last stride of 1, got 2", [](auto& t) { t.k.strides[3] = 2; }},
      {"v: expected an address", [](auto& t) { t.v.data = nullptr; }},
      {"out: expected every element at its own address", [](auto& t) { t.out.strides[0] = 0; }},
      {"out: expected memory apart from q",
       [](auto& t) { t.out.data = const_cast<void*>(t.q.data); }},
      {"q: expected an address that is a multiple of 4 bytes",
       [](auto& t) { t.q.data = static_cast<const char*>(t.q.data) + 1; }},
      {"out: expected an address that is a multiple of 4 bytes",
       [](auto& t) { t.out.data = static_cast<char*>(t.out.data) + 2; }},
      {"out: expected strides that stay inside memory", [](auto& t) { t.out.strides[2] = kFar; }},
      {"k: expected strides that stay inside memory", [](auto& t) { t.k.strides[0] = -kFar - 1; }},
      // Case 48: an option that differs from the plan's is refused.
      {"alibi_slopes: expected no tensor because the plan's problem has alibi = false",
       [&](auto& t) { t.alibi_slopes = other.view(); }},
      {"bias: expected no tensor", [&](auto& t) { t.bias = other.view(); }},
      {"sink: expected no tensor", [&](auto& t) { t.sink = other.view(); }},
      {"lse: expected no tensor", [&](auto& t) { t.lse = other.view(); }},
  };
  for (const auto& [message, change] : faults) {
    AttentionTensors tensors = operands.tensors();
    change(tensors);
    operands.out.poison();
    EXPECT_THAT(error_of([&] { run_attention(plan, tensors); }), HasSubstr(message));
    EXPECT_THAT(error_of([&] { attention_reference(problem, mask::causal(), tensors); }),
                HasSubstr(message));
    EXPECT_THAT(error_of([&] { attention_interpret(plan, tensors); }), HasSubstr(message));
    for (const std::uint8_t byte : operands.out.bytes()) ASSERT_EQ(byte, 0xff);
  }
}

TEST(AttentionCheck, NamesMissingOptions) {
  AttentionProblem problem = problem_of(16);
  problem.alibi = problem.bias = problem.sink = problem.return_lse = true;
  const AttentionPlan plan = plan_attention(problem, mask::causal());
  Operands operands(problem, 1);
  const std::vector<std::pair<const char*, std::function<void(AttentionTensors&)>>> faults = {
      {"alibi_slopes: expected float32[1], got no tensor", [](auto& t) { t.alibi_slopes = {}; }},
      {"bias: expected float32 broadcastable to [1, 1, 16, 16], got no tensor",
       [](auto& t) { t.bias = {}; }},
      {"bias: expected a shape broadcastable to [1, 1, 16, 16], got [1, 1, 3, 16]",
       [](auto& t) { t.bias.shape[2] = 3; }},
      {"bias: expected dtype float32, got bfloat16",
       [](auto& t) { t.bias.dtype = DType::kBFloat16; }},
      {"bias: expected an address that is a multiple of 4 bytes",
       [](auto& t) { t.bias.data = static_cast<const char*>(t.bias.data) + 3; }},
      {"bias: expected strides that stay inside memory", [](auto& t) { t.bias.strides[2] = kFar; }},
      {"sink: expected float32[1], got no tensor", [](auto& t) { t.sink = {}; }},
      {"lse: expected float32[1, 1, 16], got no tensor", [](auto& t) { t.lse = {}; }},
      {"lse: expected memory apart from out", [](auto& t) { t.lse.data = t.out.data; }},
      {"lse: expected memory apart from bias",
       [](auto& t) { t.lse.data = const_cast<void*>(t.bias.data); }},
  };
  for (const auto& [message, change] : faults) {
    AttentionTensors tensors = operands.tensors();
    change(tensors);
    EXPECT_THAT(error_of([&] { run_attention(plan, tensors); }), HasSubstr(message));
  }
  EXPECT_THAT(error_of([&] { run_attention(plan, operands.tensors(), RunOptions{-1}); }),
              HasSubstr("num_threads"));
}

// Case 10: batch and head extents of the mask in {1, n}; another extent is refused, naming both.
TEST(AttentionPlan, BroadcastsMasksOverBatchAndHeads) {
  AttentionProblem problem = problem_of(8);
  problem.batch = problem.num_heads_q = problem.num_heads_kv = 2;
  problem.head_dim_qk = problem.head_dim_v = 16;
  for (const std::int64_t batch : {1, 2})
    for (const std::int64_t heads : {1, 2}) {
      Tensor visible(DType::kBool, {batch, heads, 8, 8});
      auto* bits = static_cast<std::uint8_t*>(visible.data());
      for (std::int64_t i = 0; i < visible.size(); ++i) bits[i] = (i * 2654435761u >> 7) % 3 == 0;
      Operands operands(problem, 10);
      expect_right_everywhere(mask::dense(visible.view()), operands);
    }
  const mask::Mask three = mask::per_batch({mask::all(), mask::causal(), mask::none()});
  const std::string message = error_of([&] { plan_attention(problem, three); });
  EXPECT_THAT(message, HasSubstr("3"));
  EXPECT_THAT(message, HasSubstr("2"));
}

// Cases 11 and 17: plans are values; making one does not change what another does.
TEST(AttentionPlan, KeepsItsMaskWhenOthersArePlanned) {
  AttentionProblem problem = problem_of(130);
  problem.num_heads_q = problem.num_heads_kv = 2;
  const std::vector<mask::Mask> masks = {mask::window(9, 4), mask::causal(), mask::all(),
                                         mask::per_head({mask::causal(), mask::none()})};
  std::vector<AttentionPlan> plans;
  for (const mask::Mask& mask : masks) plans.push_back(plan_attention(problem, mask));
  Operands operands(problem, 17);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const Result expected = reference_of(masks[i], operands);
    operands.out.poison();
    run_attention(plans[i], operands.tensors());
    const std::vector<double> out = operands.out.values();
    for (std::size_t j = 0; j < out.size(); ++j) ASSERT_NEAR(out[j], expected.out[j], 1e-5);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(plans[i].fingerprint(), plans[j].fingerprint());
  }
}

TEST(AttentionPlan, FingerprintFollowsEveryField) {
  const Fingerprint base = plan_attention(problem_of(16), mask::causal()).fingerprint();
  EXPECT_EQ(plan_attention(problem_of(16), mask::causal()).fingerprint(), base);
  const std::vector<std::function<void(AttentionProblem&)>> changes = {
      [](auto& p) { p.batch = 2; },
      [](auto& p) { p.num_heads_q = 2; },
      [](auto& p) { p.seq_q = 17; },
      [](auto& p) { p.seq_kv = 17; },
      [](auto& p) { p.head_dim_qk = 16; },
      [](auto& p) { p.head_dim_v = 16; },
      [](auto& p) { p.scale = 1.0f; },
      [](auto& p) { p.softcap = 1; },
      [](auto& p) { p.alibi = true; },
      [](auto& p) { p.bias = true; },
      [](auto& p) { p.sink = true; },
      [](auto& p) { p.return_lse = true; },
      [](auto& p) { p.dtype = DType::kFloat16; },
      [](auto& p) { p.alignment = mask::Alignment::kBottomRight; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    AttentionProblem problem = problem_of(16);
    changes[i](problem);
    EXPECT_NE(plan_attention(problem, mask::causal()).fingerprint(), base) << "change " << i;
  }
}

TEST(AttentionPlan, DescribesItself) {
  const AttentionPlan plan = plan_attention(problem_of(16), mask::causal());
  EXPECT_THAT(plan.describe(), HasSubstr("attention float32 q[1, 1, 16, 8]"));
  EXPECT_THAT(plan.describe(), HasSubstr("causal"));
  EXPECT_THAT(plan.to_json(), HasSubstr("\"head_dim_qk\":8"));
}

}  // namespace
}  // namespace stof::cpu
