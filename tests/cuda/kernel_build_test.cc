// Every registered kernel variant compiles for its target, spills nothing and keeps its matrix
// instructions in flight. Needs NVRTC (scripts/setup fetches it), but neither a GPU nor a driver.

#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/attention/candidates.h"
#include "codegen/attention.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

/// Configurations of every candidate of a few masks at one head dimension.
std::vector<codegen::AttentionConfig> registered_configs(std::int64_t head_dim_qk,
                                                             std::int64_t head_dim_v, DType dtype,
                                                             float softcap) {
  AttentionProblem problem;
  problem.num_heads_q = 4;
  problem.num_heads_kv = 2;
  problem.seq_q = problem.seq_kv = 1024;
  problem.head_dim_qk = head_dim_qk;
  problem.head_dim_v = head_dim_v;
  problem.dtype = dtype;
  problem.softcap = softcap;
  std::vector<codegen::AttentionConfig> configs;
  std::set<std::string> names;
  for (const auto& candidate :
       enumerate_candidates(problem, mask::causal() & mask::strided(64, 128), 132))
    for (const Pass& pass : candidate.passes)
      if (names.insert(pass.config.name()).second) configs.push_back(pass.config);
  return configs;
}

struct HeadDims {
  std::int64_t qk, v;
  DType dtype;
  float softcap;
};

class KernelBuild : public testing::TestWithParam<HeadDims> {};

TEST_P(KernelBuild, CompilesWithoutSpills) {
  const HeadDims& dims = GetParam();
  const auto configs = registered_configs(dims.qk, dims.v, dims.dtype, dims.softcap);
  ASSERT_FALSE(configs.empty());
  for (const auto& config : configs) {
    const auto module =
        jit::Nvrtc::instance().compile(config.name(), codegen::emit_attention(config), "sm_90a");
    const jit::ResourceReport report = jit::parse_resources(module.log);
    EXPECT_GT(report.registers, 0) << config.name();
    EXPECT_EQ(report.spill_bytes, 0) << config.name();
    EXPECT_EQ(report.stack_bytes, 0) << config.name();
    EXPECT_FALSE(report.wgmma_serialized) << config.name();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sm90, KernelBuild,
    testing::Values(HeadDims{64, 64, DType::kBFloat16, 0}, HeadDims{128, 128, DType::kBFloat16, 0},
                    HeadDims{256, 256, DType::kFloat16, 0}, HeadDims{192, 128, DType::kBFloat16, 0},
                    HeadDims{80, 80, DType::kFloat16, 20}, HeadDims{16, 40, DType::kBFloat16, 20}),
    [](const auto& variant) {
      return "qk" + std::to_string(variant.param.qk) + "_v" + std::to_string(variant.param.v);
    });

TEST(Nvrtc, NamesTheKernelAndShowsTheLogWhenCompilationFails) {
  try {
    jit::Nvrtc::instance().compile("broken", "this is not CUDA", "sm_90a");
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJit);
    EXPECT_NE(std::string(error.what()).find("broken for sm_90a"), std::string::npos);
  }
}

}  // namespace
}  // namespace stof::cuda
