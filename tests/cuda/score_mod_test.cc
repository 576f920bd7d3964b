// What is offered for problems with a score modification, and what their kernels are named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/score_mod.h"
#include "cpu/score_mods.h"
#include "cuda/targets.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

AttentionProblem problem_with(int which) {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 4096;
  p.head_dim_qk = p.head_dim_v = 128;
  p.dtype = DType::kBFloat16;
  cpu::set_score_mod(&p, which);
  return p;
}

TEST(ScoreModCandidates, AllHaveItInNaturalAndResidueOrder) {
  const AttentionProblem p = problem_with(3);
  const mask::Mask dilated = mask::dilated(640, 32);
  bool residues = false;
  for (const Candidate& candidate : enumerate_candidates(p, dilated, kH200)) {
    ASSERT_EQ(candidate.passes.size(), 1u) << candidate.name();
    const Pass& pass = candidate.passes[0];
    EXPECT_NE(pass.config.score_mod, nullptr);
    EXPECT_THAT(candidate.name(), HasSubstr("_mod" + pass.config.score_mod->tag));
    residues |= pass.step > 1;
    // Keys of a tile are counted on from its first one.
    EXPECT_EQ(pass.step > 1 ? p.seq_kv / pass.step % pass.config.tile_kv : 0, 0);
  }
  EXPECT_TRUE(residues);
}

TEST(ScoreModCandidates, IncludeTheHopperKernelWhateverElseTheScoresGet) {
  for (const std::int64_t head_dim : {8, 64, 72, 128, 136, 192, 200, 256})
    for (int options = 0; options < 16; ++options) {
      AttentionProblem p = problem_with(4);
      p.head_dim_qk = p.head_dim_v = head_dim;
      p.softcap = options & 1 ? 20.0f : 0.0f;
      p.alibi = options & 2;
      if (options & 4) p.position_bias = {32, true, 128};
      p.bias = options & 8 && !(options & 4);
      // A bias and softcap leave wide heads to the other kernel, as they do without one.
      AttentionProblem plain = p;
      plain.score_mod.clear();
      EXPECT_EQ(sm90_configs(p, true).empty(), sm90_configs(plain, true).empty()) << p.describe();
    }
}

TEST(ScoreModCandidates, SayWhatCannotRun) {
  AttentionProblem p = problem_with(0);
  const auto reason_of = [&](const std::string& name, const mask::Mask& mask) {
    for (const CandidateFacts& facts : AttentionPlan::candidates(p, mask))
      if (facts.name == name && !facts.feasible) return facts.reason;
    return std::string();
  };
  EXPECT_EQ(reason_of("rowwise", mask::causal()), "has no score_mod");
  EXPECT_EQ(reason_of("sm90 in grid order", mask::causal()), "");
  const auto image = mask::neighbourhood({{1, 64, 64}, {1, 9, 9}, {}, {}, {}});
  EXPECT_EQ(reason_of("sm90 in grid order", image), "has no score_mod");
  EXPECT_EQ(reason_of("two passes", mask::causal() & mask::strided(64, 128)),
            "merging has no score_mod");
  p.alibi = true;
  EXPECT_EQ(reason_of("sm90 in grid order", image), "has no alibi score_mod");
  p.alibi = false;
  p.score_mod.clear();
  EXPECT_EQ(reason_of("sm90 in grid order", image), "");
}

TEST(ScoreModCandidates, CostWhatTheirFunctionTakes) {
  const auto predicted = [](int which) {
    return enumerate_candidates(problem_with(which), mask::all(), kH200).front().predicted_us();
  };
  AttentionProblem plain = problem_with(0);
  plain.score_mod.clear();
  EXPECT_GT(predicted(0), enumerate_candidates(plain, mask::all(), kH200).front().predicted_us());
  EXPECT_GT(predicted(3), predicted(0));
  EXPECT_GT(predicted(4), predicted(3));
}

TEST(ScoreModCode, IsSharedByLengthsUpToABoundAndNamedByWhatItIs) {
  AttentionProblem p = problem_with(3);
  const auto code = score_mod_code(p);
  p.seq_q = 100, p.seq_kv = 30000, p.num_heads_q = 32;
  EXPECT_EQ(score_mod_code(p)->text, code->text);
  p.seq_kv = 100000;  // products of two positions leave 32 bits
  cpu::set_score_mod(&p, 1);
  EXPECT_NE(score_mod_code(p)->tag, code->tag);
  p = problem_with(3);
  p.score_tables[0].dtype = DType::kFloat32;
  EXPECT_NE(score_mod_code(p)->tag, code->tag);
  EXPECT_EQ(code->tag.size(), 12u);
  EXPECT_EQ(code->table_words, 2);
  EXPECT_THAT(score_mod_code(problem_with(0))->text, HasSubstr("kUnrolled = true"));
  EXPECT_THAT(code->text, HasSubstr("kUnrolled = false"));
  EXPECT_THAT(codegen::emit_attention(codegen::AttentionConfig{}),
              Not(HasSubstr("expression.cuh")));
}

TEST(ScoreModCode, FindsAddressesAndStridesOfItsTables) {
  const float data[8] = {};
  std::uint64_t words[kMaxTableWords] = {};
  set_table_words({{data, DType::kFloat32, {2, 3}, {-4, 0}}, {data + 1, DType::kFloat32, {}, {}}},
                  words);
  EXPECT_EQ(words[0], reinterpret_cast<std::uint64_t>(data));
  EXPECT_EQ(static_cast<std::int64_t>(words[1]), -4);
  EXPECT_EQ(words[2], 0u);
  EXPECT_EQ(words[3], reinterpret_cast<std::uint64_t>(data + 1));
}

}  // namespace
}  // namespace stof::cuda
