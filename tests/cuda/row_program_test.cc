// Row programs: the kernel's own source run on the CPU thread by thread against loops in double,
// and every geometry compiled without spills.

#include "backend/cuda/rows/row_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <set>

#include "emulated/machine.h"
#undef __shared__
#define __shared__ static  // one for all threads of the block
#include "norm/row_program.cuh"
#undef __shared__
#define __shared__
#include "backend/cuda/rows/pooling.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof {
namespace {

using codegen::RowProgramConfig;
using testing::HasSubstr;
using HostStep = codegen::RowStep;

/// bias (elements) + residual, sum stored, layer norm (float32), stored: operands x 0, bias 1,
/// residual 2, sum 3, gamma 4, beta 5, out 6.
struct NormProgram {
  static constexpr RowHeads kHeads = {};
  static constexpr int kCount = 6;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {
        {RowStep::kAddRow, 0, false}, {RowStep::kAddVector, 1, false}, {RowStep::kAddRow, 2, false},
        {RowStep::kStore, 3, false},  {RowStep::kLayerNorm, 4, true},  {RowStep::kStore, 6, false}};
    return all[i];
  }
};
/// silu(x) * gate, scaled by a number a row, rms norm (elements): x 0, gate 1, scale 2, gamma 4,
/// out 6.
struct GateProgram {
  static constexpr RowHeads kHeads = {};
  static constexpr int kCount = 6;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {
        {RowStep::kAddRow, 0, false},      {RowStep::kSilu, 0, false},
        {RowStep::kMultiplyRow, 1, false}, {RowStep::kScale, 2, false},
        {RowStep::kRmsNorm, 4, false},     {RowStep::kStore, 6, false}};
    return all[i];
  }
};
/// (x + bias) turned by the positions 7 and the float32 frequencies 8, stored (operand 3), and its
/// keys and values in the cache 6 by the slots 9: two heads of queries, one of keys, one of values.
template <int kDim>
struct CacheProgram {
  static constexpr RowHeads kHeads = {kDim, 3 * kDim, 2 * kDim};
  static constexpr int kCount = 5;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {{RowStep::kAddRow, 0, false},
                                      {RowStep::kAddVector, 1, false},
                                      {RowStep::kRope, 7, false},
                                      {RowStep::kStore, 3, false},
                                      {RowStep::kStoreCache, 9, false}};
    return all[i];
  }
};
/// Two heads of queries and one of keys normed by 4 and 5 (float32), one of values as it is, all in
/// operand 6.
template <int kDim>
struct HeadNormProgram {
  static constexpr RowHeads kHeads = {kDim, 3 * kDim, 0, 2 * kDim};
  static constexpr int kCount = 3;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {
        {RowStep::kAddRow, 0, false}, {RowStep::kHeadNorm, 4, true}, {RowStep::kStore, 6, false}};
    return all[i];
  }
};
/// x, head after head, in operand 6.
struct HeadsProgram {
  static constexpr RowHeads kHeads = {64, 0, 0};
  static constexpr int kCount = 2;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {{RowStep::kAddRow, 0, false},
                                      {RowStep::kStoreHeads, 6, false}};
    return all[i];
  }
};
/// table[ids] + bias (float32), both gelus and relu: ids 7, table 8, bias 9, out 6.
struct EmbeddingProgram {
  static constexpr RowHeads kHeads = {};
  static constexpr int kCount = 6;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {
        {RowStep::kAddTable, 7, false}, {RowStep::kAddVector, 9, true},
        {RowStep::kGeluErf, 0, false},  {RowStep::kGeluTanh, 0, false},
        {RowStep::kRelu, 0, false},     {RowStep::kStore, 6, false}};
    return all[i];
  }
};

/// x scaled by the sums of squares 4 (float32), its own sums of squares in 5, stored in 6.
struct SquaresProgram {
  static constexpr RowHeads kHeads = {};
  static constexpr int kCount = 4;
  static constexpr RowInstruction instruction(int i) {
    constexpr RowInstruction all[] = {{RowStep::kAddRow, 0, false},
                                      {RowStep::kRmsScale, 4, false},
                                      {RowStep::kStore, 6, false},
                                      {RowStep::kStoreSquares, 5, false}};
    return all[i];
  }
};

template <class Program, int kColumns, int kPack, int kWide, int kBlock>
struct Emulated : Program {
  using Element = ptx::BFloat16;
  static constexpr int kWidth = kColumns, kVector = kPack, kWarps = kWide, kRows = kBlock;
};

constexpr std::int64_t kRowsOfAll = 5, kGap = 8;  // columns between rows that nobody may write
constexpr int kNumOperands = RowProgramParams::kMaxOperands;
constexpr float kEpsilon = 0.25f;
constexpr std::int64_t kNumSquares = 14;  ///< sums of a row

/// Random operands of one width: matrices of 5 rows in bfloat16, vectors also as float32.
struct Operands {
  std::int64_t stride;
  std::array<std::vector<BFloat16>, kNumOperands> elements;
  std::array<std::vector<float>, kNumOperands> wide;
  std::vector<std::int32_t> ids = {4, 0, 2, 2, 1}, positions = {0, 1, 77, 131071, 8},
                            slots = {3, -1, 0, 4, 1};

  explicit Operands(std::int64_t width) : stride(width + kGap) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0.5f, 1.5f);
    for (int i = 0; i < kNumOperands; ++i)
      for (std::int64_t at = 0; at < kRowsOfAll * stride; ++at) {
        const bool output = i == 3 || i == 6;
        elements[i].push_back(BFloat16(output ? std::nanf("") : normal(random)));
        wide[i].push_back(normal(random));
      }
  }
  double at(int operand, std::int64_t row, std::int64_t column) const {
    return static_cast<float>(elements[static_cast<std::size_t>(operand)]
                                      [static_cast<std::size_t>(row * stride + column)]);
  }
  double wide_at(int operand, std::int64_t column) const {
    return wide[static_cast<std::size_t>(operand)][static_cast<std::size_t>(column)];
  }
  void expect(int operand, std::int64_t row, const std::vector<double>& want) const {
    for (std::size_t c = 0; c < want.size(); ++c)
      ASSERT_NEAR(at(operand, row, static_cast<std::int64_t>(c)), want[c],
                  4e-3 * std::abs(want[c]) + 2e-5)
          << row << " " << c;
    for (std::int64_t gap = 0; gap < kGap; ++gap)
      ASSERT_TRUE(std::isnan(at(operand, row, static_cast<std::int64_t>(want.size()) + gap)));
  }
};

template <class Config>
Operands run(const std::set<int>& wide = {}, const std::set<int>& rows_of_floats = {}) {
  Operands operands(Config::kWidth);
  RowProgramParams params{};
  for (int i = 0; i < kNumOperands; ++i) {
    const auto at = static_cast<std::size_t>(i);
    params.operands[i] = {operands.elements[at].data(), operands.stride};
    if (wide.contains(i)) params.operands[i].data = operands.wide[at].data();
  }
  for (const int i : rows_of_floats) {  // one behind the other
    const auto at = static_cast<std::size_t>(i);
    params.operands[i] = {operands.wide[at].data(), 2 * kNumSquares};
    for (float& x : operands.wide[at]) x *= x;
  }
  if (Config::kHeads.cached == 0) {
    params.operands[7].data = operands.ids.data();
  } else {
    params.operands[7].data = operands.positions.data();
    params.operands[9].data = operands.slots.data();
    params.operands[10] = params.operands[6];
  }
  params.rows = kRowsOfAll;
  params.epsilon = kEpsilon;
  unsigned char none[16];
  const unsigned blocks = (kRowsOfAll + Config::kRows - 1) / Config::kRows;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    emulated::machine.run(32 * Config::kWarps * Config::kRows, none, sizeof none,
                          emulated::CopiesLand::kLate, [&] { run_row_program<Config>(params); });
  return operands;
}

double gelu_erf_of(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh_of(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

template <class Config>
void check_norm() {
  const Operands o = run<Config>({4, 5});
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    std::vector<double> sum, want;
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < Config::kWidth; ++c)
      sum.push_back(o.at(0, row, c) + o.at(1, 0, c) + o.at(2, row, c));
    for (const double x : sum) mean += x / Config::kWidth;
    for (const double x : sum) variance += (x - mean) * (x - mean) / Config::kWidth;
    for (std::int64_t c = 0; c < Config::kWidth; ++c)
      want.push_back((sum[static_cast<std::size_t>(c)] - mean) / std::sqrt(variance + kEpsilon) *
                         o.wide_at(4, c) +
                     o.wide_at(5, c));
    o.expect(3, row, sum);
    o.expect(6, row, want);
  }
}

template <class Config>
void check_gate() {
  const Operands o = run<Config>();
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    std::vector<double> want;
    double squares = 0;
    for (std::int64_t c = 0; c < Config::kWidth; ++c) {
      const double x = o.at(0, row, c);
      want.push_back(x / (1 + std::exp(-x)) * o.at(1, row, c) * o.at(2, row, 0));
      squares += want.back() * want.back() / Config::kWidth;
    }
    for (std::int64_t c = 0; c < Config::kWidth; ++c)
      want[static_cast<std::size_t>(c)] *= o.at(4, 0, c) / std::sqrt(squares + kEpsilon);
    o.expect(6, row, want);
  }
}

template <class Config>
void check_embedding() {
  const Operands o = run<Config>({9});
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    std::vector<double> want;
    for (std::int64_t c = 0; c < Config::kWidth; ++c) {
      const double x = o.at(8, o.ids[static_cast<std::size_t>(row)], c) + o.wide_at(9, c);
      want.push_back(std::max(0.0, gelu_tanh_of(gelu_erf_of(x))));
    }
    o.expect(6, row, want);
  }
}

template <class Config>
void check_cache() {
  constexpr int kDim = Config::kHeads.dim;
  const Operands o = run<Config>({8});
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    std::vector<double> x;
    for (std::int64_t c = 0; c < Config::kWidth; ++c) x.push_back(o.at(0, row, c) + o.at(1, 0, c));
    for (int head = 0; head < 3; ++head)
      for (int i = 0; i < kDim / 2; ++i) {
        const auto frequency = static_cast<float>(o.wide_at(8, i));
        const double angle =
            static_cast<float>(o.positions[static_cast<std::size_t>(row)]) * frequency;
        double& low = x[static_cast<std::size_t>(head * kDim + i)];
        double& high = x[static_cast<std::size_t>(head * kDim + kDim / 2 + i)];
        const double a = low, b = high;
        low = a * std::cos(angle) - b * std::sin(angle);
        high = b * std::cos(angle) + a * std::sin(angle);
      }
    o.expect(3, row, x);
    const std::int32_t slot = o.slots[static_cast<std::size_t>(row)];
    if (slot >= 0) o.expect(6, slot, {x.begin() + 2 * kDim, x.end()});
  }
  for (std::int64_t c = 0; c < o.stride; ++c) ASSERT_TRUE(std::isnan(o.at(6, 2, c)));
}

TEST(RowProgramEmulated, RotationStoredBesideTheCache) {
  check_cache<Emulated<CacheProgram<64>, 256, 8, 1, 4>>();
  check_cache<Emulated<CacheProgram<128>, 512, 8, 2, 1>>();
  check_cache<Emulated<CacheProgram<16>, 64, 8, 1, 1>>();  // a quarter of a warp has columns
  check_cache<Emulated<CacheProgram<128>, 512, 4, 3, 1>>();
}

template <class Config>
void check_head_norm() {
  constexpr int kDim = Config::kHeads.dim;
  const Operands o = run<Config>({4, 5});
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    std::vector<double> want;
    for (int head = 0; head < 4; ++head) {
      double squares = 0;
      for (int i = 0; i < kDim; ++i) squares += std::pow(o.at(0, row, head * kDim + i), 2) / kDim;
      for (int i = 0; i < kDim; ++i)
        want.push_back(
            o.at(0, row, head * kDim + i) *
            (head == 3 ? 1 : o.wide_at(head < 2 ? 4 : 5, i) / std::sqrt(squares + kEpsilon)));
    }
    o.expect(6, row, want);
  }
}

TEST(RowProgramEmulated, HeadsOfQueriesAndKeysNormed) {
  check_head_norm<Emulated<HeadNormProgram<256>, 1024, 8, 4, 1>>();  // a head a warp
  check_head_norm<Emulated<HeadNormProgram<64>, 256, 8, 1, 4>>();
  check_head_norm<Emulated<HeadNormProgram<16>, 64, 8, 1, 1>>();  // a quarter of a warp has columns
  check_head_norm<Emulated<HeadNormProgram<128>, 512, 4, 3, 1>>();
}

template <class Config>
void check_squares() {
  static_assert(Config::kWidth / 32 <= kNumSquares);
  const Operands o = run<Config>({}, {4, 5});
  for (std::int64_t row = 0; row < kRowsOfAll; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < kNumSquares; ++i) sum += o.wide_at(4, row * kNumSquares + i);
    const double scale = 1 / std::sqrt(sum / (32 * kNumSquares) + kEpsilon);
    std::vector<double> want, squares(Config::kWidth / 32);
    for (std::int64_t c = 0; c < Config::kWidth; ++c) {
      want.push_back(o.at(0, row, c) * scale);
      squares[static_cast<std::size_t>(c / 32)] += want.back() * want.back();
    }
    o.expect(6, row, want);
    for (std::size_t i = 0; i < squares.size(); ++i)
      ASSERT_NEAR(o.wide_at(5, row * kNumSquares + static_cast<std::int64_t>(i)), squares[i],
                  1e-5 * squares[i])
          << row << " " << i;
  }
}

TEST(RowProgramEmulated, SumsOfSquaresReadAndWritten) {
  check_squares<Emulated<SquaresProgram, 448, 8, 2, 1>>();
  check_squares<Emulated<SquaresProgram, 448, 8, 1, 4>>();
  check_squares<Emulated<SquaresProgram, 64, 8, 1, 2>>();  // a quarter of a warp has columns
  check_squares<Emulated<SquaresProgram, 192, 4, 2, 1>>();
}
TEST(RowProgramEmulated, HeadAfterHead) {
  using Config = Emulated<HeadsProgram, 192, 8, 1, 2>;
  const Operands o = run<Config>();
  for (std::int64_t row = 0; row < kRowsOfAll; ++row)
    for (std::int64_t c = 0; c < 192; ++c)
      ASSERT_EQ(static_cast<float>(
                    o.elements[6][static_cast<std::size_t>((c / 64 * 5 + row) * 64 + c % 64)]),
                o.at(0, row, c));
}
TEST(Rotation, IsWithinItsErrorAtAnyAngle) {
  for (int i = 0; i < 400000; ++i) {
    const float angle = static_cast<float>(i) * (i % 2 == 0 ? 0.37f : 9.7f);
    float cosine, sine;
    cos_sin(angle, cosine, sine);
    ASSERT_NEAR(cosine, std::cos(static_cast<double>(angle)), 2e-7) << angle;
    ASSERT_NEAR(sine, std::sin(static_cast<double>(angle)), 2e-7) << angle;
  }
}

TEST(RowProgramEmulated, ResidualAndNormWithBothOutputs) {
  check_norm<Emulated<NormProgram, 104, 8, 1, 4>>();  // 13 packs of 32 lanes, 5 rows of blocks of 4
  check_norm<Emulated<NormProgram, 520, 8, 3, 1>>();
  check_norm<Emulated<NormProgram, 264, 4, 2, 1>>();
}
TEST(RowProgramEmulated, GateScaleAndRmsNorm) {
  check_gate<Emulated<GateProgram, 264, 8, 1, 2>>();
  check_gate<Emulated<GateProgram, 264, 8, 2, 1>>();
}
TEST(RowProgramEmulated, TablesAndActivations) {
  check_embedding<Emulated<EmbeddingProgram, 40, 4, 1, 8>>();
  check_embedding<Emulated<EmbeddingProgram, 520, 8, 1, 1>>();
}

TEST(Activations, AreWithinTheirErrorEverywhere) {
  for (int i = -400000; i <= 400000; ++i) {
    const float x = static_cast<float>(i) * 5e-5f;
    ASSERT_NEAR(gelu_erf(x), gelu_erf_of(x), 6e-7 + 2e-7 * std::abs(x)) << x;
    ASSERT_NEAR(gelu_tanh(x), gelu_tanh_of(x), 1e-6 + 1e-6 * std::abs(x)) << x;
    ASSERT_NEAR(silu(x), x / (1 + std::exp(-static_cast<double>(x))), 1e-6 + 1e-6 * std::abs(x));
  }
  EXPECT_EQ(gelu_erf(1e30f), 1e30f);
  EXPECT_EQ(gelu_erf(-1e30f), 0);
  for (const float bad : {std::nanf(""), -HUGE_VALF})
    for (const float found : {gelu_erf(bad), gelu_tanh(bad), silu(bad)})
      EXPECT_TRUE(std::isnan(found)) << bad;  // an overflow is not to vanish
}

const std::vector<codegen::RowInstruction> kNorm = {
    {HostStep::kAddRow, 0}, {HostStep::kAddVector, 1},       {HostStep::kAddRow, 2},
    {HostStep::kStore, 3},  {HostStep::kLayerNorm, 4, true}, {HostStep::kStore, 6}};
const std::vector<codegen::RowInstruction> kGelu = {
    {HostStep::kAddRow, 0}, {HostStep::kAddVector, 1}, {HostStep::kGeluErf}, {HostStep::kStore, 2}};

const std::vector<codegen::RowInstruction> kCache = {{HostStep::kAddRow, 0},
                                                     {HostStep::kAddVector, 1},
                                                     {HostStep::kRope, 2},
                                                     {HostStep::kStore, 4},
                                                     {HostStep::kStoreCache, 5}};
const std::vector<codegen::RowInstruction> kApart = {
    {HostStep::kAddRow, 0}, {HostStep::kRope, 1}, {HostStep::kStoreHeads, 3}};

const std::vector<codegen::RowInstruction> kHeadsNormed = {{HostStep::kAddRow, 0},
                                                           {HostStep::kHeadNorm, 1, true},
                                                           {HostStep::kRope, 3},
                                                           {HostStep::kStore, 5},
                                                           {HostStep::kStoreCache, 6}};

TEST(RowProgramBuild, CompilesEveryGeometryWithoutSpills) {
  struct Build {
    const char* target;
    DType element;
    std::int64_t width, rows;
    const std::vector<codegen::RowInstruction>& program;
    codegen::RowHeads heads = {};
  };
  for (const Build& build :
       {Build{"sm_90a", DType::kBFloat16, 768, 32768, kNorm},
        Build{"sm_90a", DType::kFloat16, 3072, 128, kGelu},
        Build{"sm_80", DType::kBFloat16, 1032, 4096, kNorm},
        Build{"sm_90a", DType::kBFloat16, 3072, 8192, kCache, {64, 2560, 2048}},
        Build{"sm_90a", DType::kBFloat16, 6144, 16, kCache, {128, 5120, 4096}},
        Build{"sm_90a", DType::kBFloat16, 1536, 8192, kHeadsNormed, {256, 1280, 1024, 1024}},
        Build{"sm_80", DType::kFloat16, 1536, 1, kHeadsNormed, {256, 1280, 1024, 1024}},
        Build{"sm_80", DType::kFloat16, 768, 8192, kApart, {64, 512, 0}}})
    for (const RowProgramConfig& config : row_program_configs(
             build.element, build.width, build.program, build.rows, 132, build.heads)) {
      const cuda::KernelSource source = cuda::RowProgram::source(config);
      const auto module = jit::Nvrtc::instance().compile(source.name, source.text, build.target);
      const jit::ResourceReport report = jit::parse_resources(module.log);
      EXPECT_GT(report.registers, 0) << source.name;
      EXPECT_EQ(report.spill_bytes, 0) << source.name;
      EXPECT_EQ(report.stack_bytes, 0) << source.name;
    }
}

TEST(RowProgramConfig, NamesTellAllConfigurationsApart) {
  std::set<std::string> names, texts;
  for (const DType element : {DType::kFloat16, DType::kBFloat16})
    for (const std::int64_t width : {24, 768, 3072, 32768})
      for (const auto& program : {kNorm, kGelu})
        for (const std::int64_t rows : {1, 100000}) {
          const auto configs = row_program_configs(element, width, program, rows, 132);
          EXPECT_FALSE(configs.empty()) << width;
          for (const RowProgramConfig& config : configs)
            EXPECT_EQ(names.insert(config.name()).second,
                      texts.insert(emit_row_program(config)).second)
                << config.name();
        }
}

TEST(RowProgramConfig, RefusesWhatItHasNoKernelFor) {
  const auto message = [](const RowProgramConfig& config) -> std::string {
    try {
      config.validate();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return error.what();
    }
    return "";
  };
  RowProgramConfig config{DType::kFloat16, 768, kNorm};
  EXPECT_EQ(message(config), "");
  config.width = 12;
  EXPECT_THAT(message(config), HasSubstr("multiples of 8, got 12"));
  config = {DType::kFloat32, 768, kNorm};
  EXPECT_THAT(message(config), HasSubstr("got float32"));
  config = {DType::kFloat16, 768, kNorm, 6};
  EXPECT_THAT(message(config), HasSubstr("4 or 8 elements, got 6"));
  config = {DType::kFloat16, 4096, kNorm};
  EXPECT_THAT(message(config), HasSubstr("1 warps hold at most 2048 columns"));
  config = {DType::kFloat16, 768, kNorm, 8, 2, 2};
  EXPECT_THAT(message(config), HasSubstr("2 rows of 2 warps"));
  config = {DType::kFloat16, 768, {{HostStep::kLayerNorm, 11}}};
  EXPECT_THAT(message(config), HasSubstr("operand 11"));
  config = {DType::kFloat16, 768, kCache, 8, 1, 4, {96, 576, 384}};
  EXPECT_THAT(message(config), HasSubstr("heads of 96"));
  config = {DType::kFloat16, 768, kCache, 4, 1, 4, {256, 512, 256}};
  EXPECT_THAT(message(config), HasSubstr("8 to 128 columns"));
  config = {DType::kFloat16, 768, kHeadsNormed, 8, 1, 4, {64, 512, 384, 100}};
  EXPECT_THAT(message(config), HasSubstr("100 of queries"));
  EXPECT_TRUE(row_program_configs(DType::kFloat16, 12, kNorm, 1, 132).empty());
  EXPECT_TRUE(row_program_configs(DType::kFloat16, 768, kCache, 1, 132, {96, 576, 384}).empty());
}

TEST(Pooling, CompilesWithoutSpillsUnderNamesThatTellAllApart) {
  std::set<std::string> names, texts;
  for (const DType element : {DType::kFloat16, DType::kBFloat16})
    for (const std::int64_t width : {24, 384, 1032})
      for (const cuda::KernelSource& source : cuda::PoolingKernels::sources(element, width)) {
        EXPECT_EQ(names.insert(source.name).second, texts.insert(source.text).second);
        if (width != 384) continue;
        const auto module = jit::Nvrtc::instance().compile(source.name, source.text, "sm_80");
        const jit::ResourceReport report = jit::parse_resources(module.log);
        EXPECT_GT(report.registers, 0) << source.name;
        EXPECT_EQ(report.spill_bytes, 0) << source.name;
      }
  EXPECT_EQ(names.size(), 18u);
  EXPECT_THROW(cuda::PoolingKernels::sources(DType::kFloat16, 12), Error);
  EXPECT_THROW(cuda::PoolingKernels::sources(DType::kFloat32, 384), Error);
}

}  // namespace
}  // namespace stof
