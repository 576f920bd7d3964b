#include "backend/cuda/attention/device_plan.h"

#include <gtest/gtest.h>

#include "backend/cuda/attention/cost_model.h"
#include "stof/block_mask.h"

namespace stof::cuda {
namespace {

AttentionProblem small_problem(std::int64_t seq_q, std::int64_t seq_kv) {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  return p;
}

codegen::AttentionConfig config_of(int warpgroups, int tile_kv, bool packed) {
  codegen::AttentionConfig config;
  config.head_dim_qk = config.head_dim_v = 64;
  config.warpgroups = warpgroups;
  config.tile_kv = tile_kv;
  config.pack_heads = packed;
  return config;
}

codegen::AttentionConfig sm80_config(int warp_slabs, int tile_kv, bool packed) {
  codegen::AttentionConfig config = config_of(1, tile_kv, packed);
  config.family = codegen::KernelFamily::kSm80;
  config.warp_slabs = warp_slabs;
  return config;
}

/// Reads the device plan as the kernel does: which pairs does it compute and show?
class Interpreter {
 public:
  Interpreter(const DevicePlan& plan, const codegen::AttentionConfig& config,
              const AttentionProblem& problem)
      : plan_(plan), config_(config), problem_(problem) {
    const std::int64_t heads = problem.num_heads_q;
    seen_.assign(static_cast<std::size_t>(problem.batch * heads * problem.seq_q * problem.seq_kv),
                 0);
    for (const WorkRecord& record : plan.records) {
      for (int i = 0; i < record.num_partial; ++i) {
        const auto& tile = plan.partial[static_cast<std::size_t>(record.partial_begin + i)];
        visit(record, tile.tile, tile.payload);
      }
      int left = record.num_full;
      for (int run = record.run_begin; left > 0; ++run) {
        const auto& tiles = plan.runs[static_cast<std::size_t>(run)];
        for (int tile = tiles.begin; tile < tiles.end; ++tile, --left) visit(record, tile, -1);
      }
    }
  }
  int seen(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
    return seen_[static_cast<std::size_t>(
        ((b * problem_.num_heads_q + h) * problem_.seq_q + q) * problem_.seq_kv + k)];
  }
  bool read_past_the_end() const { return past_end_; }

 private:
  void visit(const WorkRecord& record, int tile, int payload) {
    for (int w = 0; w < config_.slabs(); ++w)
      for (int thread = 0; thread < 128; ++thread)
        for (int i = 0; i < config_.tile_kv / 2; ++i) {
          const int slab = config_.pack_heads ? 0 : w;
          const int words = (config_.tile_kv / 2 + 31) / 32;
          if (payload >= 0) {
            const std::uint32_t word =
                plan_.payloads[static_cast<std::size_t>(payload) *
                                   static_cast<std::size_t>(config_.payload_bytes() / 4) +
                               static_cast<std::size_t>((slab * words + i / 32) * 128 + thread)];
            if ((word >> (i % 32) & 1) == 0) continue;
          }
          // PTX ISA, accumulator layouts of wgmma and, slab by slab, of mma.m16n8k16.
          const std::int64_t row = record.q_row + 64 * slab + 16 * (thread / 32) + thread % 32 / 4 +
                                   (i % 4 >= 2 ? 8 : 0);
          const std::int64_t col = static_cast<std::int64_t>(tile) * config_.tile_kv + i / 4 * 8 +
                                   thread % 4 * 2 + i % 2;
          if (row >= problem_.seq_q) continue;  // never stored
          if (col >= problem_.seq_kv) {
            past_end_ = true;
            continue;
          }
          const std::int64_t head = record.head + (config_.pack_heads ? w : 0);
          ++seen_[static_cast<std::size_t>(
              ((record.batch * problem_.num_heads_q + head) * problem_.seq_q + row) *
                  problem_.seq_kv +
              col)];
        }
  }
  const DevicePlan& plan_;
  const codegen::AttentionConfig& config_;
  const AttentionProblem& problem_;
  std::vector<int> seen_;
  bool past_end_ = false;
};

/// Every record has a tile; every part slot belongs to one record, and slots of one query tile are
/// neighbours and agree on it.
void expect_whole_parts(const DevicePlan& plan) {
  std::vector<const WorkRecord*> owner(plan.parts.size(), nullptr);
  for (const WorkRecord& record : plan.records) {
    EXPECT_GE(record.num_partial + record.num_full, 1);
    if (record.part < 0) continue;
    auto& slot = owner.at(static_cast<std::size_t>(record.part));
    EXPECT_EQ(slot, nullptr);
    slot = &record;
  }
  for (std::size_t i = 0; i < owner.size(); ++i) {
    const SplitPart& part = plan.parts[i];
    ASSERT_NE(owner[i], nullptr) << i;
    EXPECT_LE(part.first, static_cast<int>(i));
    EXPECT_GT(part.first + part.count, static_cast<int>(i));
    const WorkRecord& head = *owner[static_cast<std::size_t>(part.first)];
    EXPECT_EQ(owner[i]->q_row, head.q_row);
    EXPECT_EQ(owner[i]->head, head.head);
    EXPECT_EQ(owner[i]->batch, head.batch);
  }
}

TEST(DevicePlan, ShowsEveryVisiblePairOnceAndNothingElse) {
  using namespace stof::mask;
  const std::vector<Mask> masks = {all(),
                                   causal(),
                                   window(30, 10),
                                   none(),
                                   random_elements(0.3, 5),
                                   random_blocks_rate(64, 0.5, 3),
                                   document({70, 60, 20}) & causal(),
                                   window(20, 20) | global(3, 70)};
  for (const auto& [seq_q, seq_kv] :
       {std::pair<std::int64_t, std::int64_t>{200, 200}, {65, 333}, {256, 128}})
    for (const auto& config :
         {config_of(1, 64, false), config_of(2, 128, false), config_of(3, 96, false),
          config_of(2, 160, false), config_of(2, 64, true), sm80_config(1, 32, false),
          sm80_config(2, 16, false), sm80_config(2, 64, true)})
      for (const Mask& mask : masks) {
        const AttentionProblem p = small_problem(seq_q, seq_kv);
        const ScoreShape shape{p.batch, p.num_heads_q, seq_q, seq_kv};
        const BlockMask blocks = build_block_mask(mask, shape);
        const DevicePlan plan =
            build_device_plan(p, build_mask_plan(blocks, plan_config(config)), config, 10);
        const Interpreter reader(plan, config, p);
        EXPECT_FALSE(reader.read_past_the_end()) << mask.describe() << " " << config.name();
        expect_whole_parts(plan);
        for (std::int64_t b = 0; b < p.batch; ++b)
          for (std::int64_t h = 0; h < p.num_heads_q; h += 3)
            for (std::int64_t q = 0; q < seq_q; ++q)
              for (std::int64_t k = 0; k < seq_kv; ++k)
                ASSERT_EQ(reader.seen(b, h, q, k), blocks.visible(b, h, q, k))
                    << mask.describe() << " " << config.name() << " at " << b << "," << h << ","
                    << q << "," << k;
      }
}

TEST(DevicePlan, StoresEachPayloadOnce) {
  const AttentionProblem p = small_problem(1024, 1024);
  const auto config = config_of(2, 128, false);
  const mask::BlockMask blocks = build_block_mask(mask::causal(), {2, 4, 1024, 1024});
  const DevicePlan plan =
      build_device_plan(p, build_mask_plan(blocks, plan_config(config)), config, 10);
  EXPECT_EQ(plan.payloads.size() * 4, static_cast<std::size_t>(config.payload_bytes()));
  EXPECT_EQ(plan.records.size(), 2u * 4 * 8);
}

DevicePlan plan_of(const mask::Mask& mask, std::int64_t seq, int num_blocks) {
  AttentionProblem p = small_problem(seq, seq);
  const auto config = config_of(1, 64, false);
  const mask::BlockMask blocks =
      build_block_mask(mask, {p.batch, p.num_heads_q, p.seq_q, p.seq_kv});
  return build_device_plan(p, build_mask_plan(blocks, plan_config(config)), config, num_blocks);
}

TEST(Queue, CutsRowsTooLongForABlock) {
  const DevicePlan plan = plan_of(mask::window(64, 64) | mask::global(64, 0), 4096, 132);
  EXPECT_FALSE(plan.parts.empty());
  int longest = 0;
  for (const WorkRecord& record : plan.records)
    longest = std::max(longest, record.num_partial + record.num_full);
  EXPECT_LE(longest, 11);  // 64 uncut; a block's fair share is 21
  EXPECT_GE(plan.records.front().part, 0);
}

TEST(Queue, CutsTheLastWaveOfEqualRows) {
  // 8 heads of 64 tiles: one row more than the blocks take in whole waves.
  const DevicePlan plan = plan_of(mask::all(), 4096, 511);
  EXPECT_EQ(plan.parts.size(), 8u);
  EXPECT_EQ(plan.records.size(), 511u + 8);
  EXPECT_EQ(plan.records[510].part, -1);
  EXPECT_EQ(plan_of(mask::all(), 4096, 512).parts.size(), 0u);
}

TEST(Queue, LetsFewRowsUseAllBlocks) {
  const DevicePlan plan = plan_of(mask::all(), 2048, 1024);
  EXPECT_EQ(plan.records.size(), 1024u);
}

TEST(CountTiles, AgreesWithThePlan) {
  using namespace stof::mask;
  for (const Mask& mask : {causal(), window(100, 30), random_blocks_rate(64, 0.3, 9), all(), none(),
                           window(70, 70) | global(10, 130)})
    for (const auto& config :
         {config_of(1, 64, false), config_of(2, 128, false), config_of(2, 192, false)}) {
      const BlockMask blocks = build_block_mask(mask, {1, 1, 1000, 1000});
      const plan::MaskPlan plan = build_mask_plan(blocks, plan_config(config));
      std::int64_t planned = 0, counted = 0;
      for (const auto& item : plan.items) {
        planned += item.partial_end - item.partial_begin;
        for (auto r = item.run_begin; r < item.run_end; ++r)
          planned += plan.runs[static_cast<std::size_t>(r)].end -
                     plan.runs[static_cast<std::size_t>(r)].begin;
      }
      const auto counts = count_tiles(blocks, config.query_rows(), config.tile_kv);
      for (const TileCounts& tiles : counts[0]) counted += tiles.full + tiles.partial;
      EXPECT_EQ(planned, counted) << mask.describe() << " " << config.name();
    }
}

}  // namespace
}  // namespace stof::cuda
