// Products of few rows without a GPU: the kernel's own source run on the CPU thread by thread
// (emulated/machine.h) against sums in double, what is refused and why, and kernels compiled
// without spills. Every candidate is run by tests/gpu/gemm_skinny_check.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/emulated_gemm.h"
#include "emulated/machine.h"
#include "gemm/skinny/kernel.cuh"

namespace stof {
extern unsigned char shared[96 * 1024];  // of sm80_emulated_test.cc
}  // namespace stof

#include "backend/cuda/gemm/skinny_gemm.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using codegen::GemmStep;
using codegen::RowPrologue;
using codegen::SkinnyGemmConfig;
using emulated::CopiesLand;
using testing::HasSubstr;

enum Parts {
  kNothing = 0,
  kGated = 1,
  kBiased = 2,
  kWithResidual = 4,
  kFloats = 8,
  kLayer = 16,
  kRms = 32,
  kTurned = 64,  // heads of 32
  kCached = 128
};

template <int kM, int kColumnWarps, int kDepthWarps, int kColumns, int kShares, int kDepth,
          int kParts>
struct Emulated {
  using Element = ptx::BFloat16;
  static constexpr int kTileM = kM, kWarpsN = kColumnWarps, kWarpsK = kDepthWarps, kIn = kColumns,
                       kSplits = kShares, kUnroll = kDepth;
  static constexpr bool kGate = kParts & kGated, kBias = kParts & kBiased,
                        kFloatBias = kParts & kFloats, kFloatGamma = kParts & kFloats,
                        kResidual = kParts & kWithResidual, kNorm = kParts & (kLayer | kRms),
                        kCenter = kParts & kLayer, kCache = kParts & kCached;
  static constexpr int kRopeDim = kParts & kTurned ? 32 : 0;

  static SkinnyGemmConfig host() {
    SkinnyGemmConfig config;
    config.tile_m = kM, config.warps_n = kColumnWarps, config.warps_k = kDepthWarps;
    config.in = kColumns, config.splits = kShares, config.unroll = kDepth;
    if (kGate) config.steps = {GemmStep::kSilu, GemmStep::kGate};
    if (kRopeDim > 0) config.steps = {GemmStep::kRope}, config.rope_dim = kRopeDim;
    if (kCache) config.steps.push_back(GemmStep::kCacheStore);
    if (kNorm) config.prologue = kCenter ? RowPrologue::kLayerNorm : RowPrologue::kRmsNorm;
    config.gamma = kFloatGamma ? DType::kFloat32 : DType::kBFloat16;
    return config;
  }
};

/// `blocks`: of the grid.
template <class Config>
void check(std::int64_t rows, std::int64_t out, unsigned blocks, CopiesLand copies) {
  using D = SkinnyGemmSizes<Config>;
  ASSERT_EQ(Config::host().problem(), "");
  ASSERT_EQ(Config::host().shared_bytes(), D::kSharedBytes);
  ASSERT_EQ(Config::host().threads(), D::kThreads);
  constexpr std::int64_t in = D::kIn;
  std::mt19937 random(3);
  const std::int64_t columns = D::kGate ? out / 2 : out;
  const Matrix x(rows, in, 1, random), residual(rows, columns, 1, random);
  const Matrix w(out, in, 1 / std::sqrt(static_cast<float>(in)), random);
  Matrix y(rows, columns, 0, random);
  const Matrix bias(1, out, 1, random), norm(2, in, 1, random);
  const std::vector<BFloat16> dense = w.dense();
  const std::vector<float> wide_bias = bias.floats(0), gamma = norm.floats(0),
                           beta = norm.floats(1);
  const auto* const narrow = norm.values.data();

  SkinnyGemmParams params{};
  params.x = x.values.data();
  params.w = dense.data();
  params.y = y.values.data();
  params.residual = residual.values.data();
  params.bias = D::kFloatBias ? static_cast<const void*>(wide_bias.data()) : bias.values.data();
  params.gamma = D::kFloatGamma ? static_cast<const void*>(gamma.data()) : narrow;
  params.beta = D::kFloatGamma ? static_cast<const void*>(beta.data()) : narrow + norm.stride;
  params.x_stride = x.stride;
  params.y_stride = params.residual_stride = y.stride;
  params.rows = static_cast<i32>(rows);
  params.columns = static_cast<i32>(out);
  params.tiles = static_cast<i32>((out + D::kTileN - 1) / D::kTileN);
  params.epsilon = 0.125f;
  const std::int64_t rotated = D::kRopeDim > 0 ? (out / D::kRopeDim - 1) * D::kRopeDim : 0;
  const std::int64_t cached = D::kCache ? out / 3 / 8 * 8 : columns;
  const std::vector<i32> positions = {3, 0, 70000, 5, 6, 7, 1, 2, 9, 11, 4};
  std::vector<float> frequencies;
  for (int i = 0; i < 16; ++i)
    frequencies.push_back(std::pow(10000.f, -static_cast<float>(i) / 16));
  // Backwards into a cache of more rows; the second row has none.
  std::vector<i32> slots;
  for (std::int64_t row = 0; row < rows; ++row)
    slots.push_back(row == 1 ? -1 : static_cast<i32>(rows + 2 - row));
  Matrix cache(rows + 4, out - cached + 8, 0, random);
  params.positions = positions.data(), params.frequencies = frequencies.data();
  params.slots = slots.data(), params.cache = cache.values.data();
  params.cache_stride = cache.stride;
  params.rotated = static_cast<i32>(rotated), params.cached = static_cast<i32>(cached);
  const auto tiles = static_cast<std::size_t>(params.tiles);
  std::vector<float> partials(tiles * D::kSplits * D::kTileM * D::kTileN, NAN);
  std::vector<u32> arrivals(tiles);
  params.partials = partials.data();
  params.arrivals = arrivals.data();
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    emulated::machine.run(D::kThreads, shared, D::kSharedBytes, copies,
                          [&] { skinny_gemm<Config>(params); });
  for (const u32 count : arrivals) EXPECT_EQ(count, 0u) << "the next launch needs zeros";

  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<double> normal;
    double mean = 0, squares = 0;
    for (std::int64_t k = 0; k < in; ++k) mean += D::kCenter ? x.at(row, k) / in : 0;
    for (std::int64_t k = 0; k < in; ++k) squares += std::pow(x.at(row, k) - mean, 2) / in;
    for (std::int64_t k = 0; k < in; ++k) {
      const double value = (x.at(row, k) - mean) / std::sqrt(squares + 0.125) * norm.at(0, k) +
                           (D::kCenter ? norm.at(1, k) : 0);
      normal.push_back(D::kNorm ? static_cast<float>(BFloat16(static_cast<float>(value)))
                                : x.at(row, k));
    }
    const auto product = [&](std::int64_t column) {
      double sum = D::kBias ? bias.at(0, column) : 0;
      for (std::int64_t k = 0; k < in; ++k)
        sum += normal[static_cast<std::size_t>(k)] * w.at(column, k);
      return sum;
    };
    for (std::int64_t column = 0; column < columns; ++column) {
      double value = product(column);
      if (column < rotated) {
        const std::int64_t at = column % D::kRopeDim, half = D::kRopeDim / 2;
        const double other = product(at < half ? column + half : column - half);
        const float angle = static_cast<float>(positions[static_cast<std::size_t>(row)]) *
                            frequencies[static_cast<std::size_t>(at % half)];
        value = value * std::cos(double{angle}) +
                (at < half ? -other : other) * std::sin(double{angle});
      }
      if (D::kGate)
        value = value / (1 + std::exp(-value)) * product(columns + column);
      else if (D::kBias && D::kRopeDim == 0)
        value = 0.5 * value * std::erfc(-value / std::sqrt(2.0));
      if (D::kResidual) value += residual.at(row, column);
      // Normalised elements in float32 may round to the neighbour of what doubles round to.
      ASSERT_NEAR(y.at(row, column), value, 4e-3 * std::abs(value) + (D::kNorm ? 2e-3 : 3e-5))
          << row << " " << column;
    }
    const i32 slot = slots[static_cast<std::size_t>(row)];
    for (std::int64_t column = cached; D::kCache && slot >= 0 && column < columns; ++column)
      ASSERT_EQ(cache.at(slot, column - cached), y.at(row, column)) << row << " " << column;
    for (std::int64_t gap = columns; gap < y.stride; ++gap)
      ASSERT_TRUE(std::isnan(y.at(row, gap))) << row;
  }
  for (i32 slot = 0; slot < rows + 4; ++slot) {
    const bool named = D::kCache && std::count(slots.begin(), slots.end(), slot) > 0;
    for (std::int64_t column = named ? out - cached : 0; column < cache.stride; ++column)
      ASSERT_TRUE(std::isnan(cache.at(slot, column))) << slot << " " << column;
  }
}

TEST(SkinnyGemmEmulated, StreamsTilesOneAfterTheOther) {
  for (const CopiesLand copies : {CopiesLand::kLate, CopiesLand::kEarly}) {
    check<Emulated<8, 1, 2, 200, 1, 2, kNothing>>(5, 72, 2, copies);
    check<Emulated<16, 2, 2, 328, 1, 4, kBiased | kWithResidual>>(13, 104, 3, copies);
  }
  check<Emulated<32, 4, 1, 64, 1, 2, kBiased | kFloats>>(32, 64, 1, CopiesLand::kLate);
  check<Emulated<64, 1, 4, 136, 1, 2, kWithResidual>>(41, 24, 2, CopiesLand::kLate);
}

TEST(SkinnyGemmEmulated, GatesColumnsOfTwoHalves) {
  check<Emulated<8, 2, 2, 136, 1, 2, kGated | kBiased>>(8, 112, 2, CopiesLand::kLate);
  check<Emulated<8, 4, 1, 96, 1, 4, kGated | kWithResidual | kFloats | kBiased>>(
      3, 80, 1, CopiesLand::kEarly);
}

TEST(SkinnyGemmEmulated, SharesASumAmongBlocks) {
  check<Emulated<8, 1, 2, 520, 4, 2, kBiased>>(7, 40, 8, CopiesLand::kLate);
  check<Emulated<16, 2, 2, 264, 2, 4, kGated>>(9, 96, 4, CopiesLand::kLate);
}

TEST(SkinnyGemmEmulated, NormalisesRowsFirst) {
  check<Emulated<8, 1, 4, 264, 1, 2, kRms>>(6, 40, 2, CopiesLand::kLate);
  check<Emulated<8, 2, 2, 200, 1, 4, kLayer | kFloats | kBiased>>(8, 64, 2, CopiesLand::kLate);
  check<Emulated<16, 2, 1, 520, 2, 2, kLayer | kGated>>(11, 64, 4, CopiesLand::kLate);
}

TEST(SkinnyGemmEmulated, SharesARowsNormAmongWarps) {
  check<Emulated<8, 1, 4, 264, 1, 2, kRms>>(1, 40, 2, CopiesLand::kLate);
  check<Emulated<8, 2, 3, 520, 2, 2, kLayer | kFloats>>(2, 64, 2, CopiesLand::kEarly);
  check<Emulated<16, 1, 8, 200, 1, 2, kLayer>>(3, 40, 2, CopiesLand::kLate);
}

TEST(SkinnyGemmEmulated, TurnsHeadsAndStoresInACache) {
  for (const CopiesLand copies : {CopiesLand::kLate, CopiesLand::kEarly}) {
    check<Emulated<8, 1, 2, 136, 1, 2, kTurned>>(3, 96, 2, copies);
    check<Emulated<8, 2, 2, 200, 2, 2, kTurned | kCached | kRms | kBiased>>(7, 160, 4, copies);
  }
  check<Emulated<16, 4, 1, 96, 1, 2, kTurned | kCached | kBiased | kFloats>>(11, 96, 1,
                                                                             CopiesLand::kLate);
  check<Emulated<8, 1, 4, 136, 1, 2, kCached>>(4, 72, 2, CopiesLand::kLate);
}

DeviceFacts gpu(int major, int minor, int num_sms) {
  DeviceFacts facts;
  facts.major = major;
  facts.minor = minor;
  facts.num_sms = num_sms;
  return facts;
}
const DeviceFacts kA100 = gpu(8, 0, 108), kRtx4090 = gpu(8, 9, 128), kH200 = gpu(9, 0, 132);

SkinnyProblem product(std::int64_t rows, std::int64_t out, std::int64_t in,
                      RowPrologue prologue = RowPrologue::kNone, std::vector<GemmStep> steps = {}) {
  SkinnyProblem problem;
  problem.product.rows = rows;
  problem.product.out = out;
  problem.product.in = in;
  problem.product.steps = std::move(steps);
  problem.prologue = prologue;
  return problem;
}

TEST(SkinnyGemmCandidates, RunFewRowsOnEveryGpu) {
  for (const DeviceFacts& facts : {kA100, gpu(8, 6, 84), kRtx4090, kH200})
    for (const std::int64_t rows : {1, 8, 16, 33, 64}) {
      const auto candidates = skinny_gemm_candidates(product(rows, 3072, 768), facts);
      ASSERT_FALSE(candidates.empty()) << rows;
      for (const SkinnyGemmCandidate& candidate : candidates)
        EXPECT_GE(candidate.config.tile_m, rows);
    }
  EXPECT_TRUE(skinny_gemm_candidates(product(65, 3072, 768), kH200).empty());
  EXPECT_TRUE(skinny_gemm_candidates(product(8, 3072, 768), gpu(7, 5, 40)).empty());
  // Sums of few columns are shared, those of many are not.
  EXPECT_GT(skinny_gemm_candidates(product(8, 128, 8192), kH200)[0].config.splits, 1);
  EXPECT_EQ(skinny_gemm_candidates(product(8, 22016, 4096), kH200)[0].config.splits, 1);
}

TEST(SkinnyGemmCandidates, SayWhatDoesNotFit) {
  SkinnyGemmConfig config;
  config.in = 12288;
  EXPECT_THAT(gemm_refusal(config, product(16, 64, 12288), kH200),
              HasSubstr("shared memory: 1 blocks"));
  EXPECT_THAT(gemm_refusal(config, product(17, 64, 12288), kH200),
              HasSubstr("rows: expected at most 16, got 17"));
  config.in = 768;
  config.splits = 8;
  EXPECT_THAT(config.problem(), HasSubstr("8 blocks share 6 chunks"));
  config.splits = 1;
  config.steps = {GemmStep::kRowStatistics};
  EXPECT_THAT(config.problem(), HasSubstr("these kernels have no row_statistics"));
  config.steps = {GemmStep::kRope};
  EXPECT_THAT(config.problem(), HasSubstr("rope_dim: expected a multiple of 16, got 0"));
  SkinnyProblem turned = product(1, 96, 768, RowPrologue::kNone, {GemmStep::kRope});
  turned.product.head_dim = turned.product.rotated = 64;
  config.rope_dim = 64;
  EXPECT_THAT(gemm_refusal(config, turned, kH200), HasSubstr("whole heads of 64"));
  config.rope_dim = 0;
  config.steps = {GemmStep::kSilu, GemmStep::kGate};
  EXPECT_THAT(config.problem(), HasSubstr("warps_n: expected an even number with a gate"));
  EXPECT_THROW(emit_gemm(config), Error);
}

TEST(SkinnyGemmChoice, MakesTheSameConfiguration) {
  const SkinnyProblem problem =
      product(16, 4096, 2048, RowPrologue::kLayerNorm, {GemmStep::kBias, GemmStep::kGeluErf});
  for (const SkinnyGemmCandidate& candidate : skinny_gemm_candidates(problem, kH200)) {
    const fusion::Choice choice = choice_of(candidate.config);
    EXPECT_EQ(skinny_gemm_config_of(fusion::Choice::from_text(choice.text()), problem).name(),
              candidate.config.name());
  }
  fusion::Choice choice = choice_of(SkinnyGemmConfig{});
  choice.parameters["warps_k"] = 100;
  EXPECT_THROW(skinny_gemm_config_of(choice, problem), Error);
  choice.parameters.erase("warps_k");
  EXPECT_THROW(skinny_gemm_config_of(choice, problem), Error);
}

/// What needs the most registers, with and without a norm.
TEST(SkinnyGemmBuild, CompilesWithoutSpills) {
  const auto compile = [](const SkinnyProblem& problem, const DeviceFacts& facts) {
    const SkinnyGemmConfig config = skinny_gemm_candidates(problem, facts).at(0).config;
    const auto module =
        jit::Nvrtc::instance().compile(config.name(), emit_gemm(config), facts.target());
    const jit::ResourceReport report = jit::parse_resources(module.log);
    EXPECT_GT(report.registers, 0) << config.name();
    EXPECT_EQ(report.spill_bytes, 0) << config.name();
    EXPECT_EQ(report.stack_bytes, 0) << config.name();
  };
  compile(product(8, 4096, 4096, RowPrologue::kRmsNorm, {GemmStep::kSilu, GemmStep::kGate}),
          kRtx4090);
  compile(product(32, 3072, 768, RowPrologue::kLayerNorm, {GemmStep::kBias, GemmStep::kGeluErf}),
          kH200);
  compile(product(64, 768, 1024, RowPrologue::kNone, {GemmStep::kBias, GemmStep::kResidual}),
          kA100);
}

}  // namespace
}  // namespace stof::cuda
