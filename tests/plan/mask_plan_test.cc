#include "stof/mask_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "plan/plan_support.h"
#include "stof/error.h"

namespace stof::plan {
namespace {

using mask::Alignment;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

RC_GTEST_PROP(MaskPlan, ShowsExactlyTheMasksPairsAtEveryTileSize, ()) {
  const mask::Mask mask = *any_mask();
  const auto alignment = *rc::gen::element(Alignment::kTopLeft, Alignment::kBottomRight);
  const mask::ScoreShape shape{1, 1, *rc::gen::inRange<std::int64_t>(1, 300),
                               *rc::gen::inRange<std::int64_t>(1, 300)};
  PlanConfig config;
  std::tie(config.tile_q, config.tile_kv) = *any_tile();
  config.max_tiles_per_split = *rc::gen::element(0, 0, 1, 2, 5);
  const MaskPlan plan = build(mask, shape, config, alignment);
  plan.validate();
  RC_ASSERT(plan.num_patterns == 1);
  const mask::Mask bound = mask.bind(shape, alignment);
  const std::vector<int> shown = draw_pattern(plan, 0);
  for (std::int64_t q = 0; q < shape.seq_q; ++q)
    for (std::int64_t k = 0; k < shape.seq_kv; ++k)
      RC_ASSERT(shown[static_cast<std::size_t>(q * shape.seq_kv + k)] ==
                (bound.visible(0, 0, q, k) ? 1 : 0));
  if (config.max_tiles_per_split > 0)
    for (const WorkItem& item : plan.items) {
      std::int64_t tiles = item.partial_end - item.partial_begin;
      for (auto i = item.run_begin; i < item.run_end; ++i)
        tiles += plan.runs[static_cast<std::size_t>(i)].end -
                 plan.runs[static_cast<std::size_t>(i)].begin;
      RC_ASSERT(tiles <= config.max_tiles_per_split);
    }
  RC_ASSERT(build(mask, shape, config, alignment).fingerprint() == plan.fingerprint());
}

TEST(MaskPlan, GivesEachHeadItsPattern) {
  const mask::Mask mask = mask::per_head({mask::causal(), mask::window(3, 3), mask::causal()});
  const MaskPlan plan = build(mask, {2, 3, 130, 130});
  plan.validate();
  EXPECT_EQ(plan.batch_extent, 1);
  EXPECT_EQ(plan.head_extent, 3);
  for (std::int64_t h = 0; h < 3; ++h) {
    const std::vector<int> shown = draw_pattern(plan, plan.pattern_index(1, h));
    for (std::int64_t q = 0; q < 130; ++q)
      for (std::int64_t k = 0; k < 130; ++k)
        ASSERT_EQ(shown[static_cast<std::size_t>(q * 130 + k)], mask.visible(1, h, q, k) ? 1 : 0);
  }
  EXPECT_THAT(error_of([&] { plan.pattern_index(2, 0); }), HasSubstr("batch 2"));
}

TEST(MaskPlan, KeepsFullTilesAsRuns) {
  const MaskPlan plan = build(mask::causal(), {1, 1, 4096, 4096});
  EXPECT_EQ(plan.runs.size(), 63U);          // one run left of the diagonal, none in row 0
  EXPECT_EQ(plan.partial.size(), 64U);       // the diagonal
  EXPECT_EQ(plan.payloads.size(), 64U);      // one payload: 64 rows of one word
  EXPECT_EQ(plan.items.front().q_tile, 63);  // dearest first
  EXPECT_EQ(plan.items.back().q_tile, 0);
}

TEST(MaskPlan, MakesFullTilesOutOfFullParts) {
  PlanConfig config;
  config.tile_q = config.tile_kv = 128;
  const MaskPlan plan = build(mask::all(), {1, 1, 300, 300}, config);
  plan.validate();
  EXPECT_TRUE(plan.partial.empty());
  ASSERT_EQ(plan.runs.size(), 3U);
  EXPECT_EQ(plan.runs[0].begin, 0);
  EXPECT_EQ(plan.runs[0].end, 3);  // the ragged last tile included
}

// Case 8: a plan costs what its tiles cost, never seq * seq.
TEST(MaskPlan, StaysSmallForLongSequences) {
  PlanConfig config;
  config.tile_q = 96;
  const MaskPlan plan = build(mask::sliding(256), {1, 1, 96000, 96000}, config);
  const std::size_t bytes = plan.items.size() * sizeof(WorkItem) +
                            plan.partial.size() * sizeof(PartialTile) +
                            plan.runs.size() * sizeof(TileRun) + plan.payloads.size() * 8;
  EXPECT_LE(bytes, std::size_t{1} << 20);
  plan.validate();
}

// Case 15: block sizes of other systems, all re-tiled.
TEST(MaskPlan, TakesBlockListsOfAnySize) {
  for (const auto& [block_q, block_kv] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {16, 16}, {32, 32}, {64, 64}, {96, 96}, {128, 128}, {64, 128}, {128, 64}}) {
    mask::BlockList list;
    list.block_q = block_q;
    list.block_kv = block_kv;
    const std::int64_t rows = (260 + block_q - 1) / block_q, cols = (300 + block_kv - 1) / block_kv;
    list.heads.resize(1);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<std::int32_t> row;
      for (std::int64_t c = r % 2; c < cols; c += 2) row.push_back(static_cast<std::int32_t>(c));
      list.heads[0].push_back(row);
    }
    for (const std::int32_t tile : {64, 96, 128}) {
      PlanConfig config;
      config.tile_q = tile;
      config.tile_kv = 64;
      const MaskPlan plan = build(mask::block_list(list), {1, 1, 260, 300}, config);
      plan.validate();
      const std::vector<int> shown = draw_pattern(plan, 0);
      for (std::int64_t q = 0; q < 260; ++q)
        for (std::int64_t k = 0; k < 300; ++k)
          ASSERT_EQ(shown[static_cast<std::size_t>(q * 300 + k)],
                    (q / block_q) % 2 == (k / block_kv) % 2 ? 1 : 0);
    }
  }
}

// Case 22: predicates that are true or false everywhere, lengths that are no multiple of a tile.
TEST(MaskPlan, ClassifiesConstantMasks) {
  PlanConfig config;
  config.tile_q = config.tile_kv = 128;
  const MaskPlan full = build(mask::causal(1000), {1, 1, 100, 100}, config);
  EXPECT_TRUE(full.partial.empty());
  ASSERT_EQ(full.runs.size(), 1U);
  const MaskPlan empty = build(mask::causal(-1000), {1, 1, 100, 100}, config);
  EXPECT_TRUE(empty.partial.empty() && empty.runs.empty());
  EXPECT_EQ(empty.items.size(), 1U);  // the row of tiles that stores zeros
}

TEST(MaskPlan, RefusesTilesItCannotCut) {
  const mask::BlockMask mask = mask::build_block_mask(mask::all(), {1, 1, 8, 8});
  PlanConfig config;
  config.tile_q = 12;
  EXPECT_EQ(error_of([&] { build_mask_plan(mask, config); }),
            "plan config tile_q: expected a multiple of 8 from 8 to 512, got 12");
  config.tile_q = 64;
  config.tile_kv = 520;
  EXPECT_THAT(error_of([&] { build_mask_plan(mask, config); }), HasSubstr("tile_kv"));
  config.tile_kv = 64;
  config.max_tiles_per_split = -1;
  EXPECT_THAT(error_of([&] { build_mask_plan(mask, config); }), HasSubstr("max_tiles_per_split"));
}

TEST(MaskPlan, FingerprintFollowsEveryField) {
  const mask::ScoreShape shape{1, 2, 200, 200};
  const Fingerprint base = build(mask::causal(), shape).fingerprint();
  EXPECT_NE(build(mask::causal(1), shape).fingerprint(), base);
  EXPECT_NE(build(mask::causal(), {1, 2, 200, 201}).fingerprint(), base);
  // Case 11: a shared and a per-head plan of the same rows are different plans.
  EXPECT_NE(build(mask::per_head({mask::causal(), mask::causal(1)}), shape).fingerprint(), base);
  const std::vector<std::function<void(PlanConfig&)>> changes = {
      [](PlanConfig& c) { c.kernel = "other"; }, [](PlanConfig& c) { c.tile_q = 32; },
      [](PlanConfig& c) { c.tile_kv = 32; }, [](PlanConfig& c) { c.max_tiles_per_split = 1; }};
  for (const auto& change : changes) {
    PlanConfig config;
    change(config);
    EXPECT_NE(build(mask::causal(), shape, config).fingerprint(), base);
  }
}

TEST(MaskPlan, PrintsItselfAsJson) {
  const MaskPlan plan = build(mask::causal(), {1, 1, 130, 130});
  const auto json = nlohmann::json::parse(plan.to_json());
  EXPECT_EQ(json["items"].size(), plan.items.size());
  EXPECT_EQ(json["partial"].size(), 3U);
  EXPECT_EQ(json["payloads"][0].get<std::string>().substr(0, 32),
            "00000000000000010000000000000003");
  EXPECT_EQ(json["fingerprint"], plan.fingerprint().hex());
  EXPECT_THAT(plan.describe(), HasSubstr("3 full tiles in 2 runs, 3 partial tiles"));
}

TEST(MaskPlan, ValidateNamesWhatIsBroken) {
  const MaskPlan good = build(mask::window(70, 3), {1, 1, 300, 300});
  good.validate();
  const std::vector<std::pair<std::string, std::function<void(MaskPlan&)>>> faults = {
      {"missing or twice", [](MaskPlan& p) { p.items.pop_back(); }},
      {"missing or twice", [](MaskPlan& p) { p.items.push_back(p.items.back()); }},
      {"not sorted", [](MaskPlan& p) { std::swap(p.items.front(), p.items.back()); }},
      {"cost", [](MaskPlan& p) { p.items.front().cost += 1; }},
      {"outside the tile lists", [](MaskPlan& p) { p.items.front().partial_end = 10000; }},
      {"out of order or range", [](MaskPlan& p) { p.partial.front().tile = 5; }},
      {"does not exist", [](MaskPlan& p) { p.partial.front().payload = 99; }},
      {"does not exist",
       [](MaskPlan& p) {
         p.partial.push_back({0, 99});
       }},
      {"does not exist",
       [](MaskPlan& p) {
         p.partial.push_back({0, -1});
       }},
      {"is empty", [](MaskPlan& p) { std::fill(p.payloads.begin(), p.payloads.end(), 0); }},
      {"past the sequence",
       [](MaskPlan& p) {
         for (std::size_t word = 0; word < p.payloads.size(); ++word)
           p.payloads[word] = ~std::uint64_t{word % 64 == 0};  // one hidden pair, or it were full
       }},
      {"never used",
       [](MaskPlan& p) {
         p.payloads.insert(p.payloads.end(), static_cast<std::size_t>(p.payload_words()), 1);
       }},
      {"multiple", [](MaskPlan& p) { p.payloads.push_back(1); }},
      {"pattern 7", [](MaskPlan& p) { p.pattern_of[0] = 7; }},
      {"batch_extent", [](MaskPlan& p) { p.batch_extent = 3; }},
  };
  for (const auto& [expected, break_it] : faults) {
    MaskPlan bad = good;
    break_it(bad);
    EXPECT_THAT(error_of([&] { bad.validate(); }), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace stof::plan
