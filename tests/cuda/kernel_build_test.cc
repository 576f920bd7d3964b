// Every registered kernel variant compiles for its target, spills nothing and keeps its matrix
// instructions in flight. Needs NVRTC (scripts/setup fetches it), but neither a GPU nor a driver.

#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/attention/two_of_four.h"
#include "codegen/attention.h"
#include "cpu/score_mods.h"
#include "cuda/targets.h"
#include "jit/nvrtc.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

/// One problem's kernels of one family, for one GPU.
struct Build {
  codegen::KernelFamily family;
  KernelTarget target;
  std::int64_t head_dim_qk, head_dim_v;
  DType dtype;
  std::string options;  ///< "a" ALiBi, "b" bias, "s" sink, "c" softcap, "v" packed sequences,
                        ///< "p" position bias, "g" grid order,
                        ///< "2" two of four keys
  int score_mod = -1;   ///< one of cpu/score_mods.h

  bool has(char option) const { return options.find(option) != std::string::npos; }
  std::string gpu() const {
    return "sm_" + std::to_string(target.compute_capability) +
           (target.compute_capability >= 90 ? "a" : "");
  }
};

/// Configurations of every candidate of a mask that also runs in residue order and in two passes.
std::vector<codegen::AttentionConfig> registered_configs(const Build& build) {
  AttentionProblem problem;
  problem.num_heads_q = 4;
  problem.num_heads_kv = 2;
  problem.seq_q = problem.seq_kv = 16384;  // residues longer than any key tile
  problem.head_dim_qk = build.head_dim_qk;
  problem.head_dim_v = build.head_dim_v;
  problem.dtype = build.dtype;
  problem.softcap = build.has('c') ? 20 : 0;
  problem.alibi = build.has('a');
  problem.bias = build.has('b');
  problem.sink = build.has('s');
  if (build.has('p')) {
    problem.position_bias.num_buckets = 32;
    problem.num_heads_kv = 4;  // what packs heads holds the same
  }
  if (build.score_mod >= 0) {
    cpu::set_score_mod(&problem, build.score_mod);
    problem.num_heads_kv = 4;  // likewise
  }
  if (build.has('g')) {
    problem.num_heads_kv = 4;  // nothing to pack
    problem.seq_q = problem.seq_kv = 16 * 32 * 32;
    const auto video = mask::neighbourhood({{16, 32, 32}, {7, 14, 14}, {}, {}, {}});
    std::vector<codegen::AttentionConfig> configs;
    for (const auto& candidate : enumerate_candidates(problem, video, build.target))
      if (!candidate.passes.empty() && candidate.passes[0].grid)
        configs.push_back(candidate.passes[0].config);
    return configs;
  }
  if (build.has('2')) return two_of_four_configs(problem, true, build.target);
  // Merging passes with modifications are compiled at narrow heads only: minutes of CI otherwise.
  const bool two_passes = build.options.empty() || build.head_dim_qk <= 64;
  const mask::Mask mask =
      two_passes ? mask::causal() & mask::strided(64, 128) : mask::causal() & mask::window(64, 0);
  std::vector<codegen::AttentionConfig> configs;
  if (build.has('v')) {
    const auto packed = cpu::pack_sequences(problem, mask::causal(), {0, 100}, {0, 100});
    for (const auto& candidate : packed_candidates(packed, blocks_of_parts(packed), build.target))
      configs.push_back(candidate.config);
    return configs;
  }
  std::set<std::string> names;
  for (const auto& candidate : enumerate_candidates(problem, mask, build.target))
    for (const Pass& pass : candidate.passes)
      if (pass.config.family == build.family && names.insert(pass.config.name()).second)
        configs.push_back(pass.config);
  return configs;
}

class KernelBuild : public testing::TestWithParam<Build> {};

TEST_P(KernelBuild, CompilesWithoutSpills) {
  const auto configs = registered_configs(GetParam());
  ASSERT_FALSE(configs.empty());
  for (const auto& config : configs) {
    const auto module = jit::Nvrtc::instance().compile(
        config.name(), codegen::emit_attention(config), GetParam().gpu());
    const jit::ResourceReport report = jit::parse_resources(module.log);
    EXPECT_GT(report.registers, 0) << config.name();
    EXPECT_EQ(report.spill_bytes, 0) << config.name();
    EXPECT_EQ(report.stack_bytes, 0) << config.name();
    EXPECT_FALSE(report.wgmma_serialized) << config.name();
  }
}

std::string name_of(const testing::TestParamInfo<Build>& info) {
  const Build& build = info.param;
  return build.gpu() + "_qk" + std::to_string(build.head_dim_qk) + "_v" +
         std::to_string(build.head_dim_v) + (build.options.empty() ? "" : "_" + build.options) +
         (build.score_mod < 0 ? "" : "_mod" + std::to_string(build.score_mod)) +
         (build.target.alignment < 16 ? "_align" + std::to_string(build.target.alignment) : "");
}

constexpr auto kSm90 = codegen::KernelFamily::kSm90;
constexpr auto kSm80 = codegen::KernelFamily::kSm80;
INSTANTIATE_TEST_SUITE_P(Sm90, KernelBuild,
                         testing::Values(Build{kSm90, kH200, 64, 64, DType::kBFloat16, ""},
                                         Build{kSm90, kH200, 128, 128, DType::kBFloat16, ""},
                                         Build{kSm90, kH200, 256, 256, DType::kFloat16, ""},
                                         Build{kSm90, kH200, 192, 128, DType::kBFloat16, ""},
                                         Build{kSm90, kH200, 80, 80, DType::kFloat16, "c"},
                                         Build{kSm90, kH200, 16, 40, DType::kBFloat16, "c"}),
                         name_of);

// All modifications at once need the most registers; what is not offered with a bias (three
// warpgroups, 160 keys, merging passes) is covered by the kernels without.
INSTANTIATE_TEST_SUITE_P(Sm90Scores, KernelBuild,
                         testing::Values(Build{kSm90, kH200, 64, 64, DType::kBFloat16, "as"},
                                         Build{kSm90, kH200, 64, 64, DType::kFloat16, "abs"},
                                         Build{kSm90, kH200, 128, 128, DType::kFloat16, "abs"},
                                         Build{kSm90, kH200, 256, 256, DType::kBFloat16, "abs"},
                                         Build{kSm90, kH200, 192, 128, DType::kFloat16, "abcs"},
                                         Build{kSm90, kH200, 64, 40, DType::kFloat16, "abcs"},
                                         Build{kSm90, kH200, 64, 64, DType::kBFloat16, "asv"},
                                         Build{kSm90, kH200, 128, 128, DType::kBFloat16, "asv"},
                                         Build{kSm90, kH200, 64, 64, DType::kBFloat16, "psv"},
                                         Build{kSm90, kH200, 128, 128, DType::kFloat16, "aps"}),
                         name_of);

// Functions that hold most: table reads in 64-bit offsets, T5's buckets, documents; and those short
// enough to be there once a score.
INSTANTIATE_TEST_SUITE_P(Sm90ScoreMod, KernelBuild,
                         testing::Values(Build{kSm90, kH200, 64, 64, DType::kBFloat16, "acs", 7},
                                         Build{kSm90, kH200, 64, 64, DType::kBFloat16, "psv", 4},
                                         Build{kSm90, kH200, 128, 128, DType::kFloat16, "abs", 8},
                                         Build{kSm90, kH200, 256, 256, DType::kBFloat16, "s", 11}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Sm80ScoreMod, KernelBuild,
                         testing::Values(Build{kSm80, kA100, 64, 64, DType::kBFloat16, "as", 4},
                                         Build{kSm80, kH200, 128, 128, DType::kFloat16, "b", 7},
                                         Build{kSm80, kA100, 256, 256, DType::kFloat16, "c", 8}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Sm90Grid, KernelBuild,
                         testing::Values(Build{kSm90, kH200, 128, 128, DType::kBFloat16, "gs"}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Sm80Scores, KernelBuild,
                         testing::Values(Build{kSm80, kA100, 64, 64, DType::kBFloat16, "abs"},
                                         Build{kSm80, kH200, 128, 128, DType::kFloat16, "abs"},
                                         Build{kSm80, kA100, 256, 256, DType::kFloat16, "abcs"},
                                         Build{kSm80, kH200, 512, 512, DType::kFloat16, "abs"},
                                         Build{kSm80, kA100, 128, 128, DType::kBFloat16, "asv"},
                                         Build{kSm80, kA100, 64, 64, DType::kFloat16, "aps"}),
                         name_of);

// What users of each GPU run most, and every branch of configs_sm80.cc somewhere.
INSTANTIATE_TEST_SUITE_P(Sm80, KernelBuild,
                         testing::Values(Build{kSm80, kA100, 128, 128, DType::kBFloat16, ""},
                                         Build{kSm80, kA100, 256, 256, DType::kFloat16, ""},
                                         Build{kSm80, kAda, 64, 64, DType::kFloat16, ""},
                                         Build{kSm80, kAda, 64, 64, DType::kFloat16, "c"},
                                         Build{kSm80, kAda, 128, 128, DType::kBFloat16, "c"},
                                         Build{kSm80, kAda, 512, 512, DType::kBFloat16, ""},
                                         Build{kSm80, kH200, 128, 128, DType::kBFloat16, ""},
                                         Build{kSm80, kH200, 320, 512, DType::kFloat16, ""},
                                         Build{kSm80, KernelTarget{90, 132, 2}, 40, 24,
                                               DType::kFloat16, "c"}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Sm80TwoOfFour, KernelBuild,
                         testing::Values(Build{kSm80, kA100, 64, 64, DType::kFloat16, "2"},
                                         Build{kSm80, kAda, 128, 128, DType::kBFloat16, "2"},
                                         Build{kSm80, kH200, 128, 128, DType::kBFloat16, "2"}),
                         name_of);

TEST(AttentionConfig, RefusesRegistersThatNeverCome) {
  codegen::AttentionConfig config;  // 168 registers at launch for 384 threads: 504 a thread column
  config.consumer_registers = 240, config.producer_registers = 32;
  EXPECT_THROW(config.validate(), Error);
  config.producer_registers = 24;
  config.validate();
}

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
