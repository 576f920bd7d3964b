#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "mask/block/bitmap.h"
#include "mask/block/builder.h"
#include "stof/block_mask.h"
#include "stof/error.h"

namespace stof::mask {
namespace {

/// The parts of a valid mask, to be broken one at a time.
struct Parts {
  ScoreShape shape{1, 2, 130, 200};
  std::int64_t batch_extent = 1, head_extent = 2;
  std::vector<std::int32_t> pattern_of;
  std::vector<BlockPattern> patterns;
  std::vector<OuterBitmap> bitmaps;
};

Parts valid_parts() {
  Parts parts;
  const BlockMask mask = build_block_mask(per_head({causal(), window(80, 3)}), parts.shape);
  for (std::int64_t h = 0; h < 2; ++h)
    parts.pattern_of.push_back(static_cast<std::int32_t>(mask.pattern_index(0, h)));
  for (std::int64_t i = 0; i < mask.num_patterns(); ++i) parts.patterns.push_back(mask.pattern(i));
  parts.bitmaps = mask.bitmaps();
  return parts;
}

std::string fault_after(const std::function<void(Parts&)>& break_it) {
  Parts p = valid_parts();
  break_it(p);
  return BlockMaskBuilder::find_fault(BlockMaskBuilder::assemble(
      p.shape, p.batch_extent, p.head_extent, p.pattern_of, p.patterns, p.bitmaps));
}

TEST(BlockMaskValidate, AcceptsWhatTheBuilderMakes) {
  EXPECT_EQ(fault_after([](Parts&) {}), "");
}

TEST(BlockMaskValidate, ThrowsInternalNamingTheField) {
  Parts p = valid_parts();
  p.patterns[0].partial_ptr[1] = -1;
  const BlockMask mask =
      BlockMaskBuilder::assemble(p.shape, 1, 2, p.pattern_of, p.patterns, p.bitmaps);
  try {
    mask.validate();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("pattern.0.partial_ptr[1]"));
  }
}

struct Breakage {
  const char* name;
  std::function<void(Parts&)> apply;
  const char* message;
};

class BlockMaskFault : public ::testing::TestWithParam<Breakage> {};

TEST_P(BlockMaskFault, IsNamed) {
  EXPECT_THAT(fault_after(GetParam().apply), ::testing::HasSubstr(GetParam().message));
}

// causal at [130, 200]: row 0 has partial 0; row 1 run [0,1) and partial 1; row 2 run [0,2) and
// partial 2, which is cut to two rows.
const Breakage kBreakages[] = {
    {"ZeroLength", [](Parts& p) { p.shape.seq_q = 0; }, "shape"},
    {"HugeLength", [](Parts& p) { p.shape.seq_kv = std::int64_t{1} << 40; }, "shape"},
    {"HeadExtent", [](Parts& p) { p.shape.num_heads = 3; }, "head_extent"},
    {"BatchExtent",
     [](Parts& p) {
       p.batch_extent = 2;
       p.head_extent = 1;
     },
     "batch_extent"},
    {"PatternOfSize", [](Parts& p) { p.pattern_of.pop_back(); }, "pattern_of"},
    {"PatternOfRange", [](Parts& p) { p.pattern_of[1] = 2; }, "pattern_of"},
    {"PatternOfNegative", [](Parts& p) { p.pattern_of[0] = -1; }, "pattern_of"},
    {"PatternUnused", [](Parts& p) { p.pattern_of[1] = 0; }, "pattern_of"},
    {"PatternTwice", [](Parts& p) { p.patterns[1] = p.patterns[0]; },
     "pattern.1: equals pattern.0"},
    {"PtrTooShort", [](Parts& p) { p.patterns[0].full_run_ptr.pop_back(); },
     "pattern.0.full_run_ptr: expected 4 entries"},
    {"PtrNotFromZero", [](Parts& p) { p.patterns[0].full_run_ptr[0] = 1; },
     "pattern.0.full_run_ptr[0]"},
    {"PtrFalls", [](Parts& p) { p.patterns[1].partial_ptr[2] = 0; }, "pattern.1.partial_ptr[2]"},
    {"PtrPastTheEnd", [](Parts& p) { p.patterns[0].full_run_ptr[3] += 1; },
     "pattern.0.full_run_ptr: expected to end"},
    {"RunEmpty", [](Parts& p) { p.patterns[0].full_runs[0].end = 0; }, "pattern.0.full_runs"},
    {"RunNegative", [](Parts& p) { p.patterns[0].full_runs[0].begin = -1; }, "pattern.0.full_runs"},
    {"RunPastTheEnd", [](Parts& p) { p.patterns[0].full_runs[1].end = 5; }, "pattern.0.full_runs"},
    {"RunsTouch",
     [](Parts& p) {
       p.patterns[0].full_runs[1] = {0, 1};
       p.patterns[0].full_runs.push_back({1, 2});
       p.patterns[0].full_run_ptr[3] += 1;
     },
     "pattern.0.full_runs"},
    {"PartialInRun", [](Parts& p) { p.patterns[0].partial[1].col = 0; }, "also in the full run"},
    {"PartialPastTheEnd", [](Parts& p) { p.patterns[0].partial[0].col = 4; }, "columns below 4"},
    {"PartialNegative", [](Parts& p) { p.patterns[0].partial[0].col = -1; }, "columns below 4"},
    {"PartialDescends",
     [](Parts& p) { std::swap(p.patterns[1].partial[1], p.patterns[1].partial[2]); },
     "pattern.1.partial"},
    {"BitmapRange", [](Parts& p) { p.patterns[0].partial[0].bitmap = 99; }, "bitmap indices below"},
    {"BitmapNegative", [](Parts& p) { p.patterns[0].partial[0].bitmap = -1; },
     "bitmap indices below"},
    {"BitmapOrder", [](Parts& p) { p.patterns[0].partial[0].bitmap = 1; }, "numbered by first use"},
    {"BitmapTwice", [](Parts& p) { p.bitmaps[1] = p.bitmaps[0]; }, "bitmaps: expected distinct"},
    {"BitmapUnused",
     [](Parts& p) {
       p.bitmaps.push_back(OuterBitmap{1, 2, 3});
     },
     "bitmaps: expected every one to be used"},
    {"BitmapEmpty", [](Parts& p) { p.bitmaps[0].fill(0); }, "is empty, but stored as partial"},
    {"BitmapFull", [](Parts& p) { p.bitmaps[0].fill(kAllOnes); }, "is full, but stored as partial"},
    {"EdgeBitmapFull",
     [](Parts& p) {  // every existing element of the two-row tile
       TileRows rows{};
       rows[0] = rows[1] = kAllOnes;
       p.bitmaps[1] = pack_bitmap(rows);
     },
     "is full, but stored as partial"},
    {"BitsPastTheLastQuery", [](Parts& p) { p.bitmaps[1][0] |= std::uint64_t{1} << (2 * 8); },
     "past the end"},
    {"BitsPastTheLastKey",
     [](Parts& p) {
       p.patterns[0].partial[2].col = 3;
       p.bitmaps[1][1 * 8] |= 1;  // key 3 * 64 + 8 = 200
     },
     "past the end"},
};

INSTANTIATE_TEST_SUITE_P(Fields, BlockMaskFault, ::testing::ValuesIn(kBreakages),
                         [](const auto& breakage) { return std::string(breakage.param.name); });

}  // namespace
}  // namespace stof::mask
