#include "backend/cuda/attention/problem_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using testing::HasSubstr;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CudaProblem, RunsPositionBucketsBlockWise) {
  AttentionProblem p;
  p.seq_q = p.seq_kv = 64;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  p.position_bias.num_buckets = 32;
  int feasible = 0;
  for (const auto& candidate : AttentionPlan::candidates(p, mask::all())) {
    if (candidate.feasible) {
      ++feasible;
      EXPECT_THAT(candidate.name, HasSubstr("_position"));
    } else if (candidate.name == "rowwise") {
      EXPECT_THAT(candidate.reason, HasSubstr("has no position_bias"));
    }
  }
  EXPECT_GT(feasible, 0);
  const auto packed = VarlenPlan::candidates(p, mask::all(), {0, 64}, {0, 64});
  EXPECT_FALSE(packed.empty());
  for (const auto& candidate : packed) EXPECT_THAT(candidate.name, HasSubstr("_position_varlen"));
  p.position_bias.num_buckets = 31;
  EXPECT_THAT(error_of([&] { AttentionPlan::candidates(p, mask::all()); }),
              HasSubstr("position_bias.num_buckets"));
}

}  // namespace
}  // namespace stof::cuda
