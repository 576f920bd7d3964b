// The kernels that make plans compile for every target without spills. Needs NVRTC, but neither a
// GPU nor a driver.

#include <gtest/gtest.h>

#include "backend/cuda/plan/block_list_geometry.h"
#include "codegen/plan.h"
#include "jit/nvrtc.h"

namespace stof {
namespace {

class PlanKernelBuild : public testing::TestWithParam<std::string> {};

TEST_P(PlanKernelBuild, CompilesWithoutSpills) {
  for (const auto& [name, text] : {std::pair{"list_blocks", codegen::emit_list_blocks()},
                                   {"order_records", codegen::emit_order_records()},
                                   {"classify_groups", codegen::emit_classify_groups()},
                                   {"fill_payloads", codegen::emit_fill_payloads()}}) {
    const jit::ResourceReport report =
        jit::parse_resources(jit::Nvrtc::instance().compile(name, text, GetParam()).log);
    EXPECT_GT(report.registers, 0) << name;
    EXPECT_LE(report.registers, 64) << name;
    EXPECT_EQ(report.spill_bytes, 0) << name;
    EXPECT_EQ(report.stack_bytes, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanKernelBuild, testing::Values("sm_80", "sm_89", "sm_90a"),
                         [](const auto& target) { return target.param; });

/// Head dimensions whose usual kernels have tiles that do not divide blocks of 64 tokens: others
/// are made for them.
struct Narrowed {
  cuda::KernelTarget target;
  std::string gpu;
  std::int64_t head_dim, block;
  bool softcap;
};

class BlockListKernelBuild : public testing::TestWithParam<Narrowed> {};

TEST_P(BlockListKernelBuild, CompilesWithoutSpills) {
  const Narrowed& wanted = GetParam();
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 2;
  p.seq_q = p.seq_kv = 4096;
  p.head_dim_qk = p.head_dim_v = wanted.head_dim;
  p.dtype = DType::kBFloat16;
  p.alibi = p.sink = true;
  p.softcap = wanted.softcap ? 20.0f : 0.0f;
  cuda::BlockListShape shape;
  shape.block_q = shape.block_kv = wanted.block;
  const auto candidates = block_list_candidates(p, shape, wanted.target);
  ASSERT_FALSE(candidates.empty());
  for (const auto& candidate : candidates) {
    const std::string name = candidate.config.name();
    const jit::ResourceReport report = jit::parse_resources(
        jit::Nvrtc::instance()
            .compile(name, codegen::emit_attention(candidate.config), wanted.gpu)
            .log);
    EXPECT_GT(report.registers, 0) << name;
    EXPECT_EQ(report.spill_bytes, 0) << name;
    EXPECT_EQ(report.stack_bytes, 0) << name;
    EXPECT_FALSE(report.wgmma_serialized) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, BlockListKernelBuild,
                         testing::Values(Narrowed{{90, 132, 16}, "sm_90a", 192, 64, true},
                                         Narrowed{{90, 132, 16}, "sm_90a", 192, 128, false},
                                         Narrowed{{90, 132, 16}, "sm_90a", 256, 64, false},
                                         Narrowed{{80, 108, 16}, "sm_80", 256, 64, true}),
                         [](const auto& variant) {
                           return variant.param.gpu + "_d" +
                                  std::to_string(variant.param.head_dim) + "_block" +
                                  std::to_string(variant.param.block);
                         });

TEST(BlockLists, TilesDivideBlocksOnEveryGpu) {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 2;
  p.seq_q = p.seq_kv = 4096;
  p.dtype = DType::kBFloat16;
  for (const int capability : {80, 89, 90})
    for (const std::int64_t head_dim : {16, 64, 72, 128, 192, 256, 512})
      for (const std::int64_t block : {64, 128, 192, 256}) {
        p.head_dim_qk = p.head_dim_v = head_dim;
        cuda::BlockListShape shape;
        shape.block_q = shape.block_kv = block;
        const auto candidates = block_list_candidates(p, shape, {capability, 132, 16});
        EXPECT_FALSE(candidates.empty()) << capability << " " << head_dim << " " << block;
        for (const auto& candidate : candidates) {
          candidate.config.validate();
          EXPECT_EQ(block % candidate.config.query_rows(), 0) << candidate.config.name();
          EXPECT_EQ(block % candidate.config.tile_kv, 0) << candidate.config.name();
        }
      }
}

}  // namespace
}  // namespace stof
