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

TEST(CudaProblem, RefusesPositionBucketsByName) {
  AttentionProblem p;
  p.seq_q = p.seq_kv = 64;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  p.position_bias.num_buckets = 32;
  EXPECT_THAT(error_of([&] { AttentionPlan::candidates(p, mask::all()); }),
              HasSubstr("position_bias: the GPU kernels have none, got 32 buckets"));
  EXPECT_THAT(error_of([&] { VarlenPlan::candidates(p, mask::all(), {0, 64}, {0, 64}); }),
              HasSubstr("position_bias: the GPU kernels have none, got 32 buckets"));
  p.position_bias = {};
  EXPECT_EQ(error_of([&] { AttentionPlan::candidates(p, mask::all()); }), "no error");
}

}  // namespace
}  // namespace stof::cuda
