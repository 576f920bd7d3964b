// mma.sync products without a GPU: the kernel's own source run on the CPU thread by thread
// (emulated/machine.h) against sums in double, what is refused and why, the order of what is not,
// and kernels compiled without spills. Registered kernels are run by tests/gpu/gemm_sm80_check.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/emulated_gemm.h"
#include "gemm/sm80/kernel.cuh"

namespace stof {
extern unsigned char shared[96 * 1024];  // of sm80_emulated_test.cc

}  // namespace stof

#include "backend/cuda/gemm/sm80_gemm.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using codegen::GemmStep;
using codegen::Sm80GemmConfig;
using emulated::CopiesLand;
using testing::HasSubstr;

enum Parts { kNothing = 0, kGated = 1, kBiased = 2, kWithResidual = 4, kScaled = 8, kCounted = 16 };

template <int kM, int kN, int kK, int kRowsOfWarps, int kColumnsOfWarps, int kRing, int kShares,
          int kParts>
struct Emulated {
  using Element = ptx::BFloat16;
  static constexpr int kTileM = kM, kTileN = kN, kTileK = kK, kStages = kRing,
                       kWarpsM = kRowsOfWarps, kWarpsN = kColumnsOfWarps, kSplits = kShares;
  static constexpr bool kGate = kParts & kGated, kBias = kParts & kBiased,
                        kFloatBias = kParts & kScaled, kResidual = kParts & kWithResidual,
                        kRowScale = kParts & kScaled, kStatistics = kParts & kCounted;

  static Sm80GemmConfig host() {
    Sm80GemmConfig config;
    config.tile_m = kM, config.tile_n = kN, config.tile_k = kK;
    config.warps_m = kRowsOfWarps, config.warps_n = kColumnsOfWarps;
    config.stages = kRing, config.splits = kShares;
    if (kGate) config.steps = {GemmStep::kSilu, GemmStep::kGate};
    return config;
  }
};

template <class Config>
void check(std::int64_t rows, std::int64_t in, std::int64_t out, CopiesLand copies) {
  using D = Sm80GemmSizes<Config>;
  ASSERT_EQ(Config::host().problem(), "");
  ASSERT_EQ(Config::host().shared_bytes(), D::kSharedBytes);
  ASSERT_EQ(Config::host().threads(), D::kThreads);
  std::mt19937 random(3);
  const std::int64_t columns = D::kGate ? out / 2 : out;
  const Matrix x(rows, in, 1, random), residual(rows, columns, 1, random);
  Matrix w(out, in, 1 / std::sqrt(static_cast<float>(in)), random);
  const std::vector<BFloat16> dense = w.dense();  // W has no gaps
  Matrix y(rows, columns, 0, random);
  const Matrix bias(1, out, 1, random);
  const std::vector<float> wide_bias = bias.floats(0);
  std::vector<float> scale;
  for (std::int64_t i = 0; i < rows; ++i) scale.push_back(1 + 0.1f * static_cast<float>(i % 7));

  Sm80GemmParams params{};
  params.x = x.values.data();
  params.w = dense.data();
  params.y = y.values.data();
  params.residual = residual.values.data();
  params.bias = D::kFloatBias ? static_cast<const void*>(wide_bias.data()) : bias.values.data();
  params.row_scale = scale.data();
  params.x_stride = x.stride;
  params.y_stride = params.residual_stride = y.stride;
  params.rows = static_cast<i32>(rows);
  params.in = static_cast<i32>(in);
  params.columns = static_cast<i32>(out);
  params.tiles_m = static_cast<i32>((rows + D::kTileM - 1) / D::kTileM);
  params.tiles_n = static_cast<i32>((out + D::kTileN - 1) / D::kTileN);
  params.band = 2;
  const std::int64_t tiles = params.tiles_m * params.tiles_n, sums = params.tiles_n * D::kWarpsN;
  std::vector<float2> statistics(static_cast<std::size_t>(rows * sums), {NAN, NAN});
  std::vector<float4> partials(
      static_cast<std::size_t>(tiles * D::kSplits * D::kTileM * D::kTileN / 4),
      {NAN, NAN, NAN, NAN});
  std::vector<u32> arrivals(static_cast<std::size_t>(tiles));
  params.statistics = statistics.data();
  params.partials = partials.data();
  params.arrivals = arrivals.data();
  gridDim.x = static_cast<unsigned>(tiles * D::kSplits);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    emulated::machine.run(D::kThreads, shared, D::kSharedBytes, copies,
                          [&] { sm80_gemm<Config>(params); });
  for (const u32 count : arrivals) EXPECT_EQ(count, 0u) << "the next launch needs zeros";

  for (std::int64_t row = 0; row < rows; ++row) {
    const auto product = [&](std::int64_t column) {
      double sum = 0;
      for (std::int64_t k = 0; k < in; ++k) sum += x.at(row, k) * w.at(column, k);
      if (D::kRowScale) sum *= static_cast<double>(scale[static_cast<std::size_t>(row)]);
      return D::kBias ? sum + bias.at(0, column) : sum;
    };
    double sum = 0, squares = 0;
    for (std::int64_t column = 0; column < columns; ++column) {
      double value = product(column);
      if (D::kGate)
        value = value / (1 + std::exp(-value)) * product(columns + column);
      else if (D::kBias)
        value = 0.5 * value * std::erfc(-value / std::sqrt(2.0));
      if (D::kResidual) value += residual.at(row, column);
      sum += value, squares += value * value;
      ASSERT_NEAR(y.at(row, column), value, 4e-3 * std::abs(value) + 3e-5) << row << " " << column;
    }
    for (std::int64_t gap = columns; gap < y.stride; ++gap)
      ASSERT_TRUE(std::isnan(y.at(row, gap))) << row;
    if (!D::kStatistics) continue;
    for (std::int64_t i = 0; i < sums; ++i) {
      const float2 part = statistics[static_cast<std::size_t>(row * sums + i)];
      sum -= static_cast<double>(part.x), squares -= static_cast<double>(part.y);
    }
    EXPECT_NEAR(sum, 0, 1e-3) << row;
    EXPECT_NEAR(squares, 0, 1e-3) << row;
  }
}

TEST(Sm80GemmEmulated, MultipliesTilesThatEndOutsideTheMatrix) {
  for (const CopiesLand copies : {CopiesLand::kLate, CopiesLand::kEarly}) {
    check<Emulated<32, 64, 32, 2, 2, 3, 1, kNothing>>(37, 104, 72, copies);
    check<Emulated<32, 32, 64, 1, 2, 2, 1, kBiased | kWithResidual>>(33, 200, 40, copies);
    check<Emulated<32, 128, 32, 2, 2, 4, 1, kScaled | kBiased | kCounted>>(17, 64, 200, copies);
  }
}

TEST(Sm80GemmEmulated, GatesTheColumnsOfAWarp) {
  check<Emulated<16, 64, 64, 1, 2, 3, 1, kGated | kBiased>>(20, 136, 80, CopiesLand::kLate);
  check<Emulated<32, 64, 32, 2, 1, 2, 1, kGated | kBiased | kWithResidual | kCounted | kScaled>>(
      31, 72, 112, CopiesLand::kLate);
}

TEST(Sm80GemmEmulated, SharesASumAmongBlocks) {
  check<Emulated<16, 64, 32, 1, 2, 3, 4, kBiased | kWithResidual>>(19, 232, 96, CopiesLand::kLate);
  check<Emulated<16, 32, 64, 1, 1, 2, 2, kGated>>(16, 136, 64, CopiesLand::kEarly);
}

DeviceFacts gpu(int major, int minor, int num_sms) {
  DeviceFacts facts;
  facts.major = major;
  facts.minor = minor;
  facts.num_sms = num_sms;
  return facts;
}
const DeviceFacts kA100 = gpu(8, 0, 108), kRtx4090 = gpu(8, 9, 128), kH200 = gpu(9, 0, 132);

GemmProblem product(std::int64_t rows, std::int64_t out, std::int64_t in,
                    std::vector<GemmStep> steps = {}) {
  GemmProblem problem;
  problem.rows = rows;
  problem.out = out;
  problem.in = in;
  problem.steps = std::move(steps);
  return problem;
}

TEST(Sm80GemmCandidates, KeepWithinTheSharedMemoryOfEachGpu) {
  const GemmProblem problem = product(512, 3072, 768, {GemmStep::kBias, GemmStep::kGeluErf});
  for (const auto& [facts, per_sm] :
       {std::pair{kA100, 164}, {gpu(8, 6, 84), 100}, {kRtx4090, 100}, {kH200, 228}}) {
    std::set<std::string> names;
    for (const Sm80GemmConfig& config : registered_sm80_gemm_configs(problem, facts)) {
      EXPECT_LE(config.blocks_per_sm * (config.shared_bytes() + 1024), per_sm * 1024);
      EXPECT_EQ(gemm_refusal(config, product(4096, 3072, 3072, problem.steps), kH200),
                config.splits == 1 ? "" : gemm_refusal(config, product(4096, 3072, 3072), kH200));
      EXPECT_TRUE(names.insert(config.name()).second) << config.name();
    }
    EXPECT_GE(names.size(), 15u);
  }
}

TEST(Sm80GemmCandidates, SayWhatDoesNotFit) {
  Sm80GemmConfig config;
  config.stages = 6;
  config.tile_k = 64;
  const auto reason = [&](const GemmProblem& problem, const DeviceFacts& facts) {
    config.steps = problem.steps;
    return gemm_refusal(config, problem, facts);
  };
  EXPECT_THAT(reason(product(64, 64, 64), kRtx4090), HasSubstr("shared memory: 1 blocks of"));
  EXPECT_EQ(reason(product(64, 64, 64), kH200), "");
  EXPECT_THAT(reason(product(64, 64, 64), gpu(7, 5, 40)), HasSubstr("the GPU has 7.5"));
  EXPECT_THAT(reason(product(64, 64, 60), kH200), HasSubstr("in: expected a multiple of 8"));
  EXPECT_THAT(reason(product(64, 64, 64, {GemmStep::kRmsNorm}), kH200),
              HasSubstr("these kernels have no rms_norm"));
  config.splits = 2;
  EXPECT_THAT(reason(product(64, 64, 64), kH200), HasSubstr("2 blocks share 1 blocks of K"));
  EXPECT_THAT(reason(product(4096, 4096, 4096), kH200), HasSubstr("parts of 1024 tiles"));
  config.tile_n = 96;
  EXPECT_THAT(config.problem(), HasSubstr("tile_n: expected 16, 32 or 64 columns a warp"));
  EXPECT_THROW(emit_gemm(config), Error);
}

TEST(Sm80GemmCandidates, TakeLargeTilesForManyRowsAndShareSumsForFew) {
  for (const DeviceFacts& facts : {kA100, kRtx4090}) {
    const auto many = sm80_gemm_candidates(product(8192, 3072, 768), facts);
    ASSERT_FALSE(many.empty());
    EXPECT_GE(many[0].config.tile_m * many[0].config.tile_n, 128 * 64) << many[0].config.name();
    EXPECT_EQ(many[0].config.splits, 1);
    const auto few = sm80_gemm_candidates(product(16, 768, 3072), facts);
    ASSERT_FALSE(few.empty());
    EXPECT_LE(few[0].config.tile_m, 32) << few[0].config.name();
    EXPECT_GT(few[0].config.splits, 1) << few[0].config.name();
  }
}

TEST(Sm80GemmChoice, MakesTheSameConfiguration) {
  const GemmProblem problem = product(128, 768, 768, {GemmStep::kBias, GemmStep::kResidual});
  for (const Sm80GemmConfig& config : registered_sm80_gemm_configs(problem, kA100)) {
    const fusion::Choice choice = choice_of(config);
    EXPECT_EQ(sm80_gemm_config_of(fusion::Choice::from_text(choice.text()), problem).name(),
              config.name());
  }
  fusion::Choice choice = choice_of(Sm80GemmConfig{});
  choice.parameters["stages"] = 100;
  EXPECT_THROW(sm80_gemm_config_of(choice, problem), Error);
  choice.parameters.erase("stages");
  EXPECT_THROW(sm80_gemm_config_of(choice, problem), Error);
}

/// What needs the most registers for each GPU, and what differs in the text.
TEST(Sm80GemmBuild, CompilesWithoutSpills) {
  const auto compile = [](const char* shape, const DeviceFacts& facts, DType element,
                          std::vector<GemmStep> steps) {
    GemmProblem problem = product(1, 8, 8, std::move(steps));
    problem.element = element;
    for (const Sm80GemmConfig& config : registered_sm80_gemm_configs(problem, facts)) {
      if (config.shape().find(shape) != 0) continue;
      const auto module =
          jit::Nvrtc::instance().compile(config.name(), emit_gemm(config), facts.target());
      const jit::ResourceReport report = jit::parse_resources(module.log);
      EXPECT_GT(report.registers, 0) << config.name();
      EXPECT_EQ(report.spill_bytes, 0) << config.name();
      EXPECT_EQ(report.stack_bytes, 0) << config.name();
      return;
    }
    FAIL() << shape;
  };
  compile("256x128x32w4x2", kA100, DType::kBFloat16,
          {GemmStep::kBias, GemmStep::kGeluErf, GemmStep::kResidual, GemmStep::kRowStatistics});
  compile("128x128x32w2x2", kRtx4090, DType::kFloat16,
          {GemmStep::kRowScale, GemmStep::kBias, GemmStep::kSilu, GemmStep::kGate});
  compile("64x64x64w2x2s6k4", kH200, DType::kBFloat16, {GemmStep::kBias, GemmStep::kResidual});
}

}  // namespace
}  // namespace stof::cuda
