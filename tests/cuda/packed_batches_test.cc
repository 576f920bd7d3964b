#include "backend/cuda/attention/packed_batches.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "backend/cuda/attention/packed_plan.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

/// What a record walks: its tiles in order, with the payload's words where it has one.
using Walk = std::vector<std::pair<int, std::vector<std::uint32_t>>>;

/// By sequence, head and first row.
std::map<std::tuple<int, int, int>, Walk> walks_of(const DevicePlan& plan,
                                                   const codegen::AttentionConfig& config) {
  const auto words = static_cast<std::ptrdiff_t>(config.payload_bytes() / 4);
  std::map<std::tuple<int, int, int>, Walk> walks;
  for (const WorkRecord& record : plan.records) {
    EXPECT_EQ(record.part, -1);
    Walk walk;
    for (int i = 0; i < record.num_partial; ++i) {
      const auto& tile = plan.partial.at(static_cast<std::size_t>(record.partial_begin + i));
      const auto first = plan.payloads.begin() + tile.payload * words;
      EXPECT_LE((tile.payload + 1) * words, static_cast<std::ptrdiff_t>(plan.payloads.size()));
      walk.push_back({tile.tile, {first, first + words}});
    }
    int left = record.num_full;
    for (int run = record.run_begin; left > 0; ++run) {
      const plan::TileRun& tiles = plan.runs.at(static_cast<std::size_t>(run));
      for (int tile = tiles.begin; tile < tiles.end && left > 0; ++tile, --left)
        walk.push_back({tile, {}});
    }
    EXPECT_TRUE(walks.try_emplace({record.batch, record.head, record.q_row}, walk).second);
  }
  return walks;
}

AttentionProblem problem_of(std::int64_t head_dim) {
  AttentionProblem p;
  p.num_heads_q = p.num_heads_kv = 3;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.dtype = DType::kFloat16;
  return p;
}

TEST(PackedBatches, HaveTheListsOfAPlanMadeForThem) {
  const mask::Mask heads = mask::per_head({mask::causal(), mask::window(9, 40), mask::all()});
  for (const int capability : {90, 80})
    for (const mask::Mask& mask : {mask::all(), mask::bigbird(32, 1, 1, 2, 11), heads}) {
      const AttentionProblem problem = problem_of(capability == 90 ? 32 : 128);
      const KernelTarget target{capability, 2, 16};
      PackedBatches batches(problem, mask, target);
      for (const std::vector<std::int64_t>& offsets :
           {std::vector<std::int64_t>{0, 300, 300, 365, 429, 729, 730}, {0, 65, 365}, {0, 1}}) {
        const PackedBatch batch = batches.batch_of(offsets);
        const auto& config = batches.configs().at(batch.kernel);
        const auto packed = cpu::pack_sequences(problem, mask, offsets, offsets);
        const DevicePlan expected = build_packed_plan(packed, blocks_of_parts(packed), config, 2);
        EXPECT_EQ(walks_of(batch.plan, config), walks_of(expected, config)) << config.name();
        const auto sequences = sequences_of(packed);
        ASSERT_EQ(batch.sequences.size(), sequences.size());
        for (std::size_t i = 0; i < sequences.size(); ++i) {
          EXPECT_EQ(batch.sequences[i].q_begin, sequences[i].q_begin);
          EXPECT_EQ(batch.sequences[i].seq_q, sequences[i].seq_q);
          EXPECT_EQ(batch.sequences[i].kv_begin, sequences[i].kv_begin);
          EXPECT_EQ(batch.sequences[i].seq_kv, sequences[i].seq_kv);
        }
      }
    }
}

TEST(PackedBatches, RefuseAMaskForOtherLengthsEveryTime) {
  mask::BlockList list;
  list.block_q = list.block_kv = 64;
  list.heads = {{{0}, {1}}};
  PackedBatches batches(problem_of(32), mask::block_list(list), {90, 2, 16});
  for (int call = 0; call < 2; ++call) EXPECT_THROW(batches.batch_of({0, 40}), Error);
}

TEST(PackedBatches, StoreALengthOnceAndTheLongestFirst) {
  PackedBatches batches(problem_of(200), mask::all(), {80, 108, 16});
  ASSERT_EQ(batches.configs().size(), 1u);
  const DevicePlan one = batches.batch_of({0, 200}).plan;
  const DevicePlan many = batches.batch_of({0, 10, 210, 410, 420}).plan;
  const DevicePlan ten = batches.batch_of({0, 10}).plan;
  EXPECT_EQ(many.partial.size(), one.partial.size() + ten.partial.size());
  EXPECT_EQ(many.payloads.size(), one.payloads.size() + ten.payloads.size());
  EXPECT_EQ(many.records.size(), 2 * (one.records.size() + ten.records.size()));
  EXPECT_EQ(many.records.front().batch, 1);
  EXPECT_EQ(many.records.back().batch, 3);
}

}  // namespace
}  // namespace stof::cuda
