#include <gtest/gtest.h>

#include "backend/cuda/attention/candidates.h"
#include "jit/nvrtc.h"

namespace stof::cuda {
namespace {

AttentionProblem small_problem(std::int64_t seq_q, std::int64_t seq_kv, std::int64_t head_dim) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.dtype = DType::kBFloat16;
  return p;
}

/// How often an item's lists show each (row, key), as the kernel reads them.
std::vector<int> pairs_shown(const RowwiseLists& lists, const RowItem& item, std::int64_t seq_kv) {
  std::vector<int> shown(static_cast<std::size_t>(16 * seq_kv), 0);
  for (int i = 0; i < item.num_chunks; ++i) {
    const KeyChunk& chunk = lists.chunks[static_cast<std::size_t>(item.chunk_begin + i)];
    for (int row = 0; row < 16; ++row)
      for (int c = 0; c < 16; ++c) {
        const std::int64_t key =
            chunk.columns < 0 ? chunk.first + c
                              : lists.columns[static_cast<std::size_t>(16 * chunk.columns + c)];
        const bool bit =
            chunk.bits < 0 || (lists.bits[static_cast<std::size_t>(8 * chunk.bits + row / 2)] >>
                                   (16 * (row % 2) + c) &
                               1);
        if (key < 0 || key >= seq_kv) {
          EXPECT_FALSE(bit) << "a key outside is shown";
          continue;
        }
        shown[static_cast<std::size_t>(row * seq_kv + key)] += bit;
      }
  }
  return shown;
}

TEST(RowwiseLists, ShowEveryVisiblePairOnceAndNothingElse) {
  using namespace stof::mask;
  for (const auto& [seq_q, seq_kv] : {std::pair<std::int64_t, std::int64_t>{128, 128}, {65, 333}})
    for (const Mask& mask :
         {all(), causal(), none(), window(30, 10), random_elements(0.03, 5),
          random_elements(0.6, 5), causal() & strided(8, 32), random_blocks_rate(64, 0.5, 3)}) {
      const AttentionProblem p = small_problem(seq_q, seq_kv, 64);
      const BlockMask blocks = build_block_mask(mask, {p.batch, p.num_heads_q, seq_q, seq_kv});
      const auto lists = build_rowwise_lists(p, blocks, 10000);
      ASSERT_TRUE(lists);
      ASSERT_EQ(static_cast<std::int64_t>(lists->items.size()), 2 * 4 * ((seq_q + 15) / 16));
      for (const RowItem& item : lists->items) {
        const std::vector<int> shown = pairs_shown(*lists, item, seq_kv);
        for (std::int64_t row = 0; row < 16 && item.q_row + row < seq_q; ++row)
          for (std::int64_t k = 0; k < seq_kv; ++k)
            ASSERT_EQ(shown[static_cast<std::size_t>(row * seq_kv + k)],
                      blocks.visible(item.batch, item.head, item.q_row + row, k))
                << mask.describe() << " row " << item.q_row + row << " key " << k;
      }
    }
}

TEST(RowwiseLists, ReadOnlyKeysThatSomeRowSees) {
  const AttentionProblem p = small_problem(1024, 1024, 64);
  const mask::BlockMask blocks =
      build_block_mask(mask::causal() & mask::strided(1, 64), {2, 4, 1024, 1024});
  const auto lists = build_rowwise_lists(p, blocks, 100'000);
  ASSERT_TRUE(lists);
  // The last 16 rows see their own 16 keys, one before these and 16 keys in each of 15 earlier
  // strides: one consecutive chunk, and 241 keys gathered by 16.
  EXPECT_EQ(lists->items.back().num_chunks, 17);
  EXPECT_FALSE(build_rowwise_lists(p, blocks, 10));
}

TEST(Candidates, OfferTheRowWiseKernelWhereFewKeysAreRead) {
  const auto rank = [](const AttentionProblem& p, const mask::Mask& mask) {
    int index = 0;
    for (const Candidate& candidate : enumerate_candidates(p, mask, KernelTarget{})) {
      if (candidate.rowwise) return index;
      ++index;
    }
    return -1;
  };
  EXPECT_EQ(rank(small_problem(128, 128, 64), mask::causal()), 0);
  EXPECT_EQ(rank(small_problem(4096, 4096, 64), mask::all()), -1);
  AttentionProblem unaligned = small_problem(128, 128, 64);
  KernelTarget target;
  target.alignment = 4;
  EXPECT_NE(rowwise_infeasible(unaligned, target).find("aligned to 16 bytes"), std::string::npos);
}

class RowwiseKernelBuild : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RowwiseKernelBuild, CompilesWithoutSpills) {
  const auto [compute_capability, head_dim] = GetParam();
  AttentionProblem p = small_problem(128, 128, head_dim);
  p.softcap = head_dim == 64 ? 0.0f : 20.0f;
  KernelTarget target;
  target.compute_capability = compute_capability;
  const auto passes =
      rowwise_passes(p, build_block_mask(mask::causal(), {2, 4, 128, 128}), target, 1e9);
  ASSERT_FALSE(passes.empty());
  DeviceFacts gpu;
  gpu.major = compute_capability / 10, gpu.minor = compute_capability % 10;
  for (const RowwisePass& pass : passes) {
    const jit::ResourceReport report = jit::parse_resources(
        jit::Nvrtc::instance()
            .compile(pass.config.name(), codegen::emit_rowwise(pass.config), gpu.target())
            .log);
    EXPECT_GT(report.registers, 0) << pass.config.name();
    EXPECT_EQ(report.spill_bytes, 0) << pass.config.name();
    EXPECT_EQ(report.stack_bytes, 0) << pass.config.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Rowwise, RowwiseKernelBuild,
                         testing::Values(std::tuple{90, 64}, std::tuple{90, 128},
                                         std::tuple{80, 256}, std::tuple{89, 72}),
                         [](const auto& variant) {
                           return "sm_" + std::to_string(std::get<0>(variant.param)) + "_qk" +
                                  std::to_string(std::get<1>(variant.param));
                         });

}  // namespace
}  // namespace stof::cuda
