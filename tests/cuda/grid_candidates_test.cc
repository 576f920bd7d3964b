// Which problems grid order is offered for.

#include <gtest/gtest.h>

#include "backend/cuda/attention/candidates.h"
#include "cuda/targets.h"

namespace stof::cuda {
namespace {

AttentionProblem grid_problem() {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = p.seq_kv = 8 * 24 * 30;
  p.head_dim_qk = p.head_dim_v = 128;
  p.dtype = DType::kBFloat16;
  return p;
}

const mask::Mask kVideo = mask::neighbourhood({{8, 24, 30}, {3, 9, 9}, {}, {}, {}});

/// The first candidate in grid order, or none.
std::optional<Candidate> in_grid_order(const AttentionProblem& p, const mask::Mask& mask,
                                       const KernelTarget& target = kH200) {
  for (Candidate& candidate : enumerate_candidates(p, mask, target))
    if (!candidate.passes.empty() && candidate.passes[0].grid) return std::move(candidate);
  return std::nullopt;
}

TEST(GridCandidates, AreThePickForAVideo) {
  const auto candidates = enumerate_candidates(grid_problem(), kVideo, kH200);
  ASSERT_TRUE(candidates.front().passes[0].grid.has_value());
  EXPECT_NE(candidates.front().name().find("_grid grid"), std::string::npos);
  EXPECT_TRUE(in_grid_order(grid_problem(), kVideo & mask::all()).has_value());
}

TEST(GridCandidates, LeaveTheNaturalOrderOfALongGridToThoseWhoNameIt) {
  AttentionProblem p = grid_problem();
  p.seq_q = p.seq_kv = 12 * 30 * 30;
  const mask::Mask video = mask::neighbourhood({{12, 30, 30}, {3, 9, 9}, {}, {}, {}});
  bool natural = false;
  for (const Candidate& candidate : enumerate_candidates(p, video, kH200)) {
    EXPECT_EQ(candidate.by_name_only.empty(), candidate.passes[0].grid.has_value());
    natural |= !candidate.passes[0].grid;
  }
  EXPECT_TRUE(natural);
  for (const Candidate& candidate : enumerate_candidates(p, video, kH200, /*by_name=*/false))
    EXPECT_TRUE(candidate.passes[0].grid.has_value());
}

TEST(GridCandidates, TakeALaunchForEachBatchEntry) {
  AttentionProblem p = grid_problem();
  const double one = in_grid_order(p, kVideo)->predicted_us();
  p.batch = 3;
  EXPECT_NEAR(in_grid_order(p, kVideo)->predicted_us(), 3 * one, 1e-6 * one);
}

TEST(GridCandidates, NeedNoKeysTokensAndOneWholeGrid) {
  EXPECT_FALSE(in_grid_order(grid_problem(), kVideo & mask::causal()));
  EXPECT_FALSE(in_grid_order(grid_problem(), kVideo, {80, 108, 16}));
  EXPECT_FALSE(in_grid_order(grid_problem(), mask::neighbourhood({{5760}, {9}, {}, {}, {}})));
  for (const auto& change : std::vector<void (*)(AttentionProblem*)>{
           [](AttentionProblem* p) { p->alibi = true; },
           [](AttentionProblem* p) { p->bias = true; },
           [](AttentionProblem* p) { p->position_bias.num_buckets = 32; },
           [](AttentionProblem* p) { ++p->seq_kv; }}) {
    AttentionProblem p = grid_problem();
    change(&p);
    EXPECT_FALSE(in_grid_order(p, kVideo));
  }
  AttentionProblem p = grid_problem();
  p.sink = true;
  p.softcap = 20;
  EXPECT_TRUE(in_grid_order(p, kVideo));
}

}  // namespace
}  // namespace stof::cuda
