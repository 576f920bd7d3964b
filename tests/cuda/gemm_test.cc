// Hopper matrix products without a GPU: what is refused and why, the order of what is not, the text
// of the steps, and that kernels of every kind compile without spills. Every registered kernel is
// compiled and run by tests/gpu/gemm_check.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "backend/cuda/gemm/choice.h"
#include "backend/cuda/gemm/configs.h"

#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using codegen::GemmConfig;
using codegen::GemmSchedule;
using codegen::GemmStep;
using testing::HasSubstr;

DeviceFacts hopper() {
  DeviceFacts facts;
  facts.name = "H200";
  facts.major = 9;
  facts.num_sms = 132;
  return facts;
}

GemmProblem product(std::int64_t rows, std::int64_t out, std::int64_t in,
                    std::vector<GemmStep> steps = {}) {
  GemmProblem problem;
  problem.rows = rows;
  problem.out = out;
  problem.in = in;
  problem.steps = std::move(steps);
  return problem;
}

TEST(GemmCandidates, RefuseWhatNoKernelTakesNamingTheArgument) {
  const auto reason = [](const GemmProblem& problem, DeviceFacts facts = hopper()) {
    const GemmCandidates candidates = gemm_candidates(problem, facts);
    EXPECT_TRUE(candidates.feasible.empty());
    return candidates.refused.empty() ? "" : candidates.refused[0].reason;
  };
  EXPECT_THAT(reason(product(0, 64, 64)), HasSubstr("rows: expected a multiple of 1 from 1"));
  EXPECT_THAT(reason(product(64, 100, 64)), HasSubstr("out: expected a multiple of 8"));
  EXPECT_THAT(reason(product(64, 64, 12)), HasSubstr("in: expected a multiple of 8"));
  EXPECT_THAT(reason(product(64, 72, 64, {GemmStep::kSilu, GemmStep::kGate})),
              HasSubstr("out: expected a multiple of 16"));
  GemmProblem strided = product(64, 64, 64);
  strided.y_stride = 32;
  EXPECT_THAT(reason(strided), HasSubstr("y_stride: expected 0 or a multiple of 8 of at least 64"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kGate, GemmStep::kBias})),
              HasSubstr("bias before the gate"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kBias, GemmStep::kBias})),
              HasSubstr("bias once, got it 2 times"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kRowStatistics, GemmStep::kBias})),
              HasSubstr("row_statistics last"));
  GemmProblem turned = product(64, 192, 64, {GemmStep::kRope, GemmStep::kBias});
  turned.head_dim = turned.rotated = 64;
  EXPECT_THAT(reason(turned), HasSubstr("rope last"));
  turned.steps = {GemmStep::kHeadStore, GemmStep::kBias};
  EXPECT_THAT(reason(turned), HasSubstr("head_store last"));
  turned.steps = {GemmStep::kHeadStore};
  turned.out = 224;
  EXPECT_THAT(reason(turned), HasSubstr("whole heads of 64 and no y_stride, got 224"));
  turned.out = 192;
  turned.steps = {GemmStep::kRope};
  turned.rotated = 100;
  EXPECT_THAT(reason(turned), HasSubstr("whole heads rotated, got 64 and 100"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kBias, GemmStep::kRmsScale})),
              HasSubstr("rms_scale first"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kRmsScale})),
              HasSubstr("num_squares: expected an even number of sums, got 0"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kRowSquares, GemmStep::kBias})),
              HasSubstr("row_squares last"));
  EXPECT_THAT(reason(product(64, 96, 64, {GemmStep::kRowSquares})),
              HasSubstr("out: expected a multiple of 64 with row_squares"));
  GemmProblem wide = product(64, 64, 64);
  wide.element = DType::kFloat32;
  EXPECT_THAT(reason(wide), HasSubstr("expected float16 or bfloat16, got float32"));
  DeviceFacts ampere = hopper();
  ampere.major = 8;
  EXPECT_THAT(reason(product(64, 64, 64), ampere), HasSubstr("needs compute capability 9.0"));
  EXPECT_THROW(default_gemm_config(product(64, 64, 12), hopper()), Error);
}

TEST(GemmCandidates, SayWhyAKernelIsLeftOut) {
  const GemmCandidates candidates =
      gemm_candidates(product(128, 768, 64, {GemmStep::kSilu, GemmStep::kGate}), hopper());
  std::string reasons;
  for (const GemmRefusal& refusal : candidates.refused)
    reasons += refusal.shape + ": " + refusal.reason + "\n";
  EXPECT_THAT(reasons, HasSubstr("cluster_k: 4 blocks share 1 blocks of K"));
  EXPECT_THAT(reasons, HasSubstr("tile_n: expected a multiple of 32"));
  EXPECT_FALSE(candidates.feasible.empty());
}

TEST(GemmCandidates, AreDistinctAndValidWhateverTheSteps) {
  const std::vector<std::vector<GemmStep>> lists = {
      {},
      {GemmStep::kBias, GemmStep::kGeluErf},
      {GemmStep::kBias, GemmStep::kResidual, GemmStep::kRowStatistics},
      {GemmStep::kRowScale, GemmStep::kSilu, GemmStep::kGate, GemmStep::kResidual}};
  for (const auto& steps : lists) {
    std::set<std::string> names;
    for (const GemmConfig& config : registered_gemm_configs(product(1, 8, 8, steps))) {
      EXPECT_EQ(config.problem(), "") << config.name();
      EXPECT_TRUE(names.insert(config.name()).second) << config.name();
    }
    EXPECT_GE(names.size(), 20u);
  }
}

TEST(GemmChoice, MakesTheSameConfiguration) {
  const GemmProblem problem = product(128, 768, 768, {GemmStep::kBias, GemmStep::kResidual});
  for (const GemmConfig& config : registered_gemm_configs(problem)) {
    const fusion::Choice choice = choice_of(config);
    EXPECT_EQ(gemm_config_of(fusion::Choice::from_text(choice.text()), problem).name(),
              config.name());
  }
  fusion::Choice choice = choice_of(default_gemm_config(problem, hopper()));
  choice.parameters["stages"] = 100;
  try {
    gemm_config_of(choice, problem);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("stages=100"));
    EXPECT_THAT(error.what(), HasSubstr("shared memory: needs"));
  }
  choice.parameters.erase("stages");
  EXPECT_THROW(gemm_config_of(choice, problem), Error);
}

/// Schedule, tile and cluster of the first candidate, without its stages.
std::string first(const GemmProblem& problem) {
  const GemmConfig config = default_gemm_config(problem, hopper());
  return std::string(1, "pcsw"[static_cast<int>(config.schedule)]) + std::to_string(config.tile_m) +
         "x" + std::to_string(config.tile_n) +
         (config.cluster_k > 1 ? "k" + std::to_string(config.cluster_k) : "");
}

TEST(GemmCandidates, PutFirstWhatWasMeasuredFastest) {
  EXPECT_EQ(first(product(4096, 2304, 768)), "p128x192");
  EXPECT_EQ(first(product(32768, 3072, 768)), "p128x192");
  EXPECT_EQ(first(product(8192, 16384, 2048)), "p128x192");
  EXPECT_EQ(first(product(8192, 2048, 8192)), "c128x256");
  const GemmConfig down = default_gemm_config(product(128, 768, 3072), hopper());
  EXPECT_EQ(down.tile_m, 64);
  EXPECT_GT(down.partners(), 1);
}

TEST(GemmText, CallsTheStepsInOrder) {
  GemmConfig config;
  config.steps = {GemmStep::kRowScale, GemmStep::kBias,     GemmStep::kSilu,
                  GemmStep::kGate,     GemmStep::kResidual, GemmStep::kRowStatistics};
  const std::string text = emit_gemm(config);
  std::size_t at = 0;
  for (const char* call : {"scale_rows(values)", "add_bias(values)",
                           "gate(values, gated, [](float x) { return silu(x); })",
                           "add_residual(gated)", "count(gated)", "store(gated)"}) {
    const std::size_t next = text.find(call, at);
    ASSERT_NE(next, std::string::npos) << call;
    at = next;
  }
  EXPECT_EQ(text.find("activate("), std::string::npos);
  EXPECT_EQ(config.name(),
            "gemm_sm90_bf16_p128x192s4_row_scale_bias_silu_gate_residual_row_statistics");
}

TEST(GemmText, ScalesRowsBeforeTheyTurn) {
  GemmConfig config;
  config.rope_dim = 64;
  config.steps = {GemmStep::kRmsScale, GemmStep::kBias, GemmStep::kRope};
  const std::string text = emit_gemm(config);  // whole heads are scaled where they turn
  EXPECT_THAT(text, HasSubstr("rotated(values)"));
  EXPECT_EQ(text.find("scale_rows"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("kRmsScale = true"));
  EXPECT_THAT(codegen::problem_of({GemmStep::kRelu, GemmStep::kRope}), HasSubstr("rope last"));
}

TEST(GemmConfig, IsNamedByAllThatItsTextDependsOn) {
  // Kernels are kept by name.
  std::map<std::string, std::string> texts;
  for (const auto& steps :
       std::vector<std::vector<GemmStep>>{{},
                                          {GemmStep::kBias},
                                          {GemmStep::kRmsNorm},
                                          {GemmStep::kBias, GemmStep::kRope},
                                          {GemmStep::kHeadStore},
                                          {GemmStep::kResidual, GemmStep::kLayerNorm}})
    for (const DType element : {DType::kBFloat16, DType::kFloat16})
      for (const DType vectors : {DType::kFloat32, element}) {
        GemmProblem problem = product(128, 768, 768, steps);
        problem.element = element;
        problem.head_dim = 64;
        problem.bias = problem.gamma = vectors;
        for (const GemmConfig& config : registered_gemm_configs(problem)) {
          const std::string text = emit_gemm(config);
          const auto [place, fresh] = texts.emplace(config.name(), text);
          const bool read = config.has(GemmStep::kBias) || config.has_norm();
          EXPECT_TRUE(fresh || !read) << config.name() << " is the name of two kernels";
        }
      }
}

TEST(GemmConfig, RefusesTilesThatDoNotFit) {
  GemmConfig config;
  config.stages = 6;
  EXPECT_THAT(config.problem(), HasSubstr("shared memory: needs"));
  config.tile_n = 256;
  EXPECT_THAT(config.problem(), HasSubstr("256 accumulators a thread are more than 192"));
  config.tile_n = 40;
  EXPECT_THAT(config.problem(), HasSubstr("tile_n: expected a multiple of 16"));
  EXPECT_THROW(emit_gemm(config), Error);
}

TEST(GemmCandidates, TakeWholeRowsByClustersWhereANormFollows) {
  const std::vector<GemmStep> steps = {GemmStep::kBias, GemmStep::kResidual, GemmStep::kLayerNorm};
  const GemmCandidates base = gemm_candidates(product(4096, 768, 768, steps), hopper());
  ASSERT_FALSE(base.feasible.empty());
  for (const GemmCandidate& candidate : base.feasible)
    EXPECT_EQ(candidate.config.cluster_n * candidate.config.tile_n, 768) << candidate.config.name();
  const GemmCandidates wide = gemm_candidates(product(4096, 4096, 768, steps), hopper());
  EXPECT_TRUE(wide.feasible.empty());
  std::string reasons;
  for (const GemmRefusal& refusal : wide.refused) reasons += refusal.reason + "\n";
  EXPECT_THAT(reasons, HasSubstr("rows of 4096 columns are not"));
  EXPECT_THAT(codegen::problem_of({GemmStep::kLayerNorm, GemmStep::kBias}),
              HasSubstr("expected layer_norm last"));
}

/// One kernel of every schedule, with the steps that need the most registers somewhere.
TEST(GemmBuild, CompilesWithoutSpills) {
  const auto compile = [](GemmSchedule schedule, int tile_m, int tile_n, int stages, int cluster_k,
                          DType element, std::vector<GemmStep> steps, int cluster_n = 1,
                          DType bias = DType::kFloat32, int rope_dim = 0) {
    GemmConfig config;
    config.cluster_n = cluster_n;
    config.schedule = schedule;
    config.tile_m = tile_m;
    config.tile_n = tile_n;
    config.stages = stages;
    config.cluster_k = cluster_k;
    config.element = element;
    config.steps = std::move(steps);
    config.bias = bias;
    config.rope_dim = rope_dim;
    config.store_dim = config.has(GemmStep::kHeadStore) ? 64 : 0;
    const auto module = jit::Nvrtc::instance().compile(config.name(), emit_gemm(config), "sm_90a");
    const jit::ResourceReport report = jit::parse_resources(module.log);
    EXPECT_GT(report.registers, 0) << config.name();
    EXPECT_EQ(report.spill_bytes, 0) << config.name();
    EXPECT_EQ(report.stack_bytes, 0) << config.name();
    EXPECT_FALSE(report.wgmma_serialized) << config.name();
  };
  compile(GemmSchedule::kPingPong, 128, 192, 4, 1, DType::kBFloat16,
          {GemmStep::kBias, GemmStep::kResidual, GemmStep::kRowStatistics});
  compile(GemmSchedule::kCooperative, 128, 256, 4, 1, DType::kFloat16,
          {GemmStep::kBias, GemmStep::kGeluErf});
  compile(GemmSchedule::kCooperative, 128, 192, 4, 1, DType::kBFloat16,
          {GemmStep::kBias, GemmStep::kResidual, GemmStep::kLayerNorm}, 4, DType::kBFloat16);
  compile(GemmSchedule::kPingPong, 128, 192, 4, 1, DType::kBFloat16, {GemmStep::kRope}, 1,
          DType::kFloat32, 64);
  compile(GemmSchedule::kCooperative, 128, 256, 4, 1, DType::kFloat16,
          {GemmStep::kBias, GemmStep::kRope}, 1, DType::kFloat16, 128);
  compile(GemmSchedule::kPingPong, 128, 192, 4, 1, DType::kBFloat16,
          {GemmStep::kBias, GemmStep::kRope, GemmStep::kHeadStore}, 1, DType::kBFloat16, 64);
  compile(GemmSchedule::kSplit, 64, 64, 8, 2, DType::kBFloat16,
          {GemmStep::kRowScale, GemmStep::kBias, GemmStep::kSilu, GemmStep::kGate});
  compile(GemmSchedule::kSingle, 64, 48, 8, 4, DType::kFloat16, {GemmStep::kResidual});
  compile(GemmSchedule::kCooperative, 128, 256, 4, 1, DType::kBFloat16,
          {GemmStep::kResidual, GemmStep::kRowSquares});
  compile(GemmSchedule::kPingPong, 128, 192, 4, 1, DType::kBFloat16,
          {GemmStep::kRmsScale, GemmStep::kSilu, GemmStep::kGate});
  compile(GemmSchedule::kPingPong, 128, 192, 4, 1, DType::kBFloat16,
          {GemmStep::kRmsScale, GemmStep::kRope}, 1, DType::kFloat32, 64);
}

}  // namespace
}  // namespace stof::cuda
