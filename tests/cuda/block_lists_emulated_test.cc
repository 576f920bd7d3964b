// The kernels that turn block lists into plans (kernels/plan), run on the CPU thread by thread,
// against the plan that the host builds of the same lists.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "emulated/machine.h"
// The kernels' own headers after the machine's built-ins.
#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/plan/block_list_geometry.h"
#include "codegen/plan.h"
#include "cuda/host_block_lists.h"
#include "cuda/seen_plan.h"
#include "plan/block_lists.cuh"
#include "plan/record_order.cuh"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof {

namespace lists {
alignas(16) unsigned char shared[64 * 1024];  // what the kernels call their dynamic shared memory
}

namespace cuda {
namespace {

class BlockListsEmulated {
 public:
  BlockListsEmulated(const AttentionProblem& problem, const BlockListShape& shape,
                     const codegen::AttentionConfig& config, int num_blocks)
      : problem_(problem), shape_(shape), config_(config), num_blocks_(num_blocks) {
    shape.validate(problem);
  }

  /// Runs both kernels on lists laid out as they are, and compares with the host's plan.
  void check(HostLists& lists) {
    const SeenPlan seen = run(lists);
    const mask::ScoreShape scores{problem_.batch, problem_.num_heads_q, problem_.seq_q,
                                  problem_.seq_kv};
    mask::Mask mask = mask_of(lists, problem_, shape_);
    if (shape_.causal) mask = mask & mask::causal();
    const auto blocks =
        build_block_mask(mask.bind(scores, problem_.alignment), scores, problem_.alignment);
    const DevicePlan plan = build_device_plan(
        problem_, build_mask_plan(blocks, plan_config(config_)), config_, num_blocks_);
    const SeenPlan expected =
        seen_plan(plan.records, plan.partial.data(), plan.runs.data(), plan.payloads, config_);
    expect_equal(seen, expected);
  }

  ListFault fault;

 private:
  SeenPlan run(HostLists& host) {
    const BlockListGeometry geometry = block_list_geometry(problem_, shape_, config_, num_blocks_);
    lists::ListParams p{};
    static_assert(sizeof(p) == sizeof(geometry.params));
    std::memcpy(&p, &geometry.params, sizeof(p));
    // What capacity leaves unwritten must not be read: runs that never end.
    std::vector<stof::TileRun> runs(static_cast<std::size_t>(p.num_rows * p.run_capacity) + 1,
                                    {5, 5});
    std::vector<stof::PartialTile> partial(
        static_cast<std::size_t>(p.num_rows * p.partial_capacity) + 1, {-5, 0});
    std::vector<lists::RowTiles> row_tiles(static_cast<std::size_t>(p.num_rows));
    std::vector<stof::WorkRecord> records(static_cast<std::size_t>(p.num_records) + 1);
    records.back().q_row = -9;
    p.counts = host.counts.data();
    p.ids = host.ids.data();
    p.max_blocks = static_cast<int>(host.width);
    const std::int64_t row = host.width;
    const std::int64_t strides[] = {host.batch_extent == 1 ? 0 : host.head_extent * host.q_blocks,
                                    host.head_extent == 1 ? 0 : host.q_blocks, 1};
    for (int i = 0; i < 3; ++i) {
      p.count_strides[i] = strides[i];
      p.id_strides[i] = strides[i] * row;
    }
    p.id_strides[3] = 1;
    p.full_tiles = geometry.full_tiles.data();
    p.partial_tiles = geometry.partial_tiles.data();
    p.tile_payloads = geometry.tile_payloads.data();
    p.runs = runs.data();
    p.partial = partial.data();
    p.row_tiles = row_tiles.data();
    p.records = records.data();
    unsigned long long error = ~0ull;
    p.error = &error;
    launch(geometry.list_blocks(), lists::kListThreads, lists::kListSharedBytes,
           [&] { lists::list_blocks(p); });
    launch(geometry.order_blocks(), lists::kOrderThreads, lists::kOrderSharedBytes,
           [&] { lists::order_records(p); });
    fault.word = error;
    EXPECT_EQ(runs.back().begin, 5) << "written past the end";
    EXPECT_EQ(partial.back().tile, -5) << "written past the end";
    EXPECT_EQ(records.back().q_row, -9) << "written past the end";
    records.pop_back();
    return seen_plan(records, partial.data(), runs.data(), geometry.payloads, config_);
  }

  template <class Body>
  static void launch(std::int64_t blocks, int threads, int shared_bytes, const Body& body) {
    gridDim.x = static_cast<unsigned>(blocks);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
      emulated::machine.run(threads, lists::shared, static_cast<std::size_t>(shared_bytes),
                            emulated::CopiesLand::kLate, body);
  }

  const AttentionProblem problem_;
  const BlockListShape shape_;
  const codegen::AttentionConfig config_;
  const int num_blocks_;
};

AttentionProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
                            std::int64_t seq_q, std::int64_t seq_kv) {
  AttentionProblem p;
  p.batch = batch;
  p.num_heads_q = heads;
  p.num_heads_kv = heads_kv;
  p.seq_q = seq_q;
  p.seq_kv = seq_kv;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  return p;
}

BlockListShape shape_of(std::int64_t block_q, std::int64_t block_kv) {
  BlockListShape shape;
  shape.block_q = block_q;
  shape.block_kv = block_kv;
  return shape;
}

TEST(BlockListsEmulated, EqualTheHostsPlanOfTheSameLists) {
  std::mt19937 random(3);
  const AttentionProblem p = problem_of(2, 2, 1, 64 * 9 + 5, 64 * 37 + 19);
  struct Case {
    std::int64_t block_q, block_kv;
    int rows, tile_kv;
    double most;
  };
  for (const Case& c : {Case{64, 64, 64, 64, 1.0},
                        {128, 128, 128, 64, 0.5},
                        {128, 64, 64, 32, 0.3},
                        {256, 256, 128, 128, 0.8},
                        {64, 192, 64, 96, 0.4}}) {
    SCOPED_TRACE(std::to_string(c.block_q) + " x " + std::to_string(c.block_kv));
    const BlockListShape shape = shape_of(c.block_q, c.block_kv);
    BlockListsEmulated run(p, shape, small_config(c.rows, c.tile_kv), 2);
    for (const bool shared_heads : {false, true}) {
      HostLists lists = random_lists(p, shape, shared_heads, c.most, random);
      run.check(lists);
      EXPECT_FALSE(run.fault.any());
    }
  }
}

TEST(BlockListsEmulated, ListsOfKeyValueHeadsServeTheirQueryHeads) {
  std::mt19937 random(7);
  BlockListShape shape = shape_of(64, 64);
  shape.per_kv_head = true;
  const AttentionProblem grouped = problem_of(2, 6, 2, 300, 700);
  HostLists lists = random_lists(grouped, shape, false, 0.8, random);
  BlockListsEmulated run(grouped, shape, small_config(64, 64), 2);
  run.check(lists);
  lists.row(1, 1, 2)[0] = 11;
  lists.count(1, 1, 2) = 1;
  run.check(lists);
  EXPECT_EQ(
      describe_fault(run.fault, grouped, shape),
      "ids: batch 1, key/value head 1, query block 2: expected 0..10, got 11; it was left out");
  // Two heads to a record.
  codegen::AttentionConfig packed = small_config(128, 64);
  packed.pack_heads = true;
  const AttentionProblem p = problem_of(2, 4, 1, 300, 700);
  HostLists shared = random_lists(p, shape, false, 0.8, random);
  BlockListsEmulated(p, shape, packed, 2).check(shared);
}

TEST(BlockListsEmulated, CausalRowsEndAtTheDiagonal) {
  std::mt19937 random(8);
  AttentionProblem p = problem_of(2, 2, 1, 128 * 5, 128 * 5);
  for (const auto& [block, tile_kv] : {std::pair{64, 64}, {64, 32}, {128, 64}, {128, 128}}) {
    SCOPED_TRACE(std::to_string(block) + " in tiles of " + std::to_string(tile_kv));
    BlockListShape shape = shape_of(block, block);
    shape.causal = true;
    HostLists lists = random_lists(p, shape, false, 1.0, random);
    BlockListsEmulated(p, shape, small_config(block, tile_kv), 2).check(lists);
    p.alignment = mask::Alignment::kBottomRight;
    for (const std::int64_t seq_q : {128 * 2, 128 * 7}) {  // rows that see nothing, too
      AttentionProblem shifted = p;
      shifted.seq_q = seq_q;
      HostLists others = random_lists(shifted, shape, false, 1.0, random);
      BlockListsEmulated(shifted, shape, small_config(block, tile_kv), 2).check(others);
    }
    p.alignment = mask::Alignment::kTopLeft;
  }
}

TEST(BlockListsEmulated, LongListsAndFewDearRowsComeFirst) {
  std::mt19937 random(4);
  // More tiles than a warp holds at a time, and two groups of heads.
  const AttentionProblem p = problem_of(1, 2, 2, 64 * 40, 64 * 8300 + 1);
  const BlockListShape shape = shape_of(64, 64);
  HostLists lists = empty_lists(1, 2, 40, 8301);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t row = 0; row < 40; ++row) {
      const int count = row % 17 == 5 ? 8301 : static_cast<int>(random() % 3);
      for (int i = 0; i < count; ++i)
        lists.row(0, h, row)[i] = count > 3 ? i : static_cast<int>(random() % 8301);
      lists.count(0, h, row) = count;
    }
  BlockListsEmulated(p, shape, small_config(64, 64), 16).check(lists);
}

TEST(BlockListsEmulated, WrongEntriesAreLeftOutAndTheFirstIsNamed) {
  std::mt19937 random(5);
  const AttentionProblem p = problem_of(2, 3, 3, 300, 500);
  const BlockListShape shape = shape_of(64, 64);
  HostLists lists = random_lists(p, shape, false, 0.5, random);
  BlockListsEmulated run(p, shape, small_config(64, 64), 4);
  lists.row(1, 2, 3)[0] = 8;
  lists.count(1, 2, 3) = 1;
  run.check(lists);
  EXPECT_EQ(describe_fault(run.fault, p, shape),
            "ids: batch 1, head 2, query block 3: expected 0..7, got 8; it was left out");
  lists.row(0, 2, 1)[0] = -2147483647 - 1;
  lists.count(0, 2, 1) = 1;
  run.check(lists);
  EXPECT_EQ(run.fault.value(), -2147483647 - 1);
  EXPECT_EQ(run.fault.row(), 2 * 5 + 1);
  lists.count(0, 1, 4) = -3;
  run.check(lists);
  EXPECT_EQ(describe_fault(run.fault, p, shape),
            "counts: batch 0, head 1, query block 4: expected 0 to the last extent of ids, got -3; "
            "it was cut to that");
  lists.count(0, 0, 0) = 0x7fffffff;  // the row is read to its end, not past it
  for (std::int64_t i = 0; i < lists.width; ++i) lists.row(0, 0, 0)[i] = static_cast<int>(i % 8);
  run.check(lists);
  EXPECT_EQ(run.fault.value(), 0x7fffffff);
}

TEST(BlockListsEmulated, ListsOfAFourByFourGrid) {
  const AttentionProblem p = problem_of(1, 1, 1, 1024, 1024);
  const BlockListShape shape = shape_of(256, 256);
  HostLists lists = empty_lists(1, 1, 4, 2);
  const int ids[4][2] = {{0, 2}, {1, 3}, {0, 3}, {2, 3}};
  for (int row = 0; row < 4; ++row) {
    lists.count(0, 0, row) = 2;
    std::copy(ids[row], ids[row] + 2, lists.row(0, 0, row));
  }
  BlockListsEmulated(p, shape, small_config(128, 64), 2).check(lists);
}

TEST(BlockListsEmulated, BlocksThatHoldFewerKeysThanTheyHaveRoomFor) {
  std::mt19937 random(6);
  // A token grid of 5x6x7 in tiles of 4x4x4, every tile padded to 64 tokens.
  const AttentionProblem p = problem_of(1, 2, 1, 8 * 64, 8 * 64);
  BlockListShape shape = shape_of(64, 64);
  shape.key_block_sizes = {64, 48, 32, 24, 16, 12, 8, 6};
  for (const int tile_kv : {64, 32}) {
    BlockListsEmulated run(p, shape, small_config(64, tile_kv), 2);
    for (const double most : {0.5, 1.0}) {
      HostLists lists = random_lists(p, shape, false, most, random);
      run.check(lists);
      EXPECT_FALSE(run.fault.any());
    }
  }
  shape.key_block_sizes[3] = 0;  // a block without keys
  HostLists lists = random_lists(p, shape, false, 1.0, random);
  BlockListsEmulated(p, shape, small_config(64, 64), 2).check(lists);
}

TEST(BlockLists, RefuseShapesByName) {
  const AttentionProblem p = problem_of(1, 1, 1, 256, 256);
  const auto message = [&](const BlockListShape& shape) -> std::string {
    try {
      shape.validate(p);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message(shape_of(32, 64)).find("block_q: "), std::string::npos);
  EXPECT_NE(message(shape_of(64, 96)).find("block_kv: "), std::string::npos);
  BlockListShape shape = shape_of(64, 64);
  shape.key_block_sizes = {64, 65, 1, 1};
  EXPECT_NE(message(shape).find("key_block_sizes[1]: expected 0..64, got 65"), std::string::npos);
  shape.causal = true;
  EXPECT_NE(message(shape).find("causal: expected no key_block_sizes"), std::string::npos);
  BlockListShape oblong = shape_of(64, 128);
  oblong.causal = true;
  EXPECT_NE(message(oblong).find("causal: expected square blocks"), std::string::npos);
  shape.causal = false;
  shape.key_block_sizes = {64};
  EXPECT_NE(message(shape).find("one for each of 4 key blocks, got 1"), std::string::npos);
}

}  // namespace
}  // namespace cuda
}  // namespace stof
