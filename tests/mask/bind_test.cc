// bind(): alignment, extents checked against the shape, and bound masks used elsewhere; the
// arguments that factories refuse.

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mask/brute_force.h"
#include "mask/node_factories.h"
#include "stof/error.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;
using Keys = std::vector<I>;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The message of the InvalidArgument that `action` throws; empty if it throws none.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

Mask dense_of(const Dims& shape) {
  const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(num_elements(shape)), 1);
  return dense(TensorView(bytes.data(), DType::kBool, shape));
}

Mask random_dense(I batch, I heads, I rows, I cols) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(batch * heads * rows * cols));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = i * 0x9e3779b97f4a7c15ULL >> 63 ? 1 : 0;
  return dense(TensorView(bytes.data(), DType::kBool, {batch, heads, rows, cols}));
}

// Case 20: both alignments where the lengths differ, each way.
TEST(Bind, AlignsCausalAtEitherEnd) {
  const ScoreShape wide{1, 1, 2, 5}, tall{1, 1, 5, 2};
  const Mask wide_top = causal().bind(wide);
  EXPECT_EQ(wide_top.visible_keys(0, 0, 0, 5), (Keys{0}));
  EXPECT_EQ(wide_top.visible_keys(0, 0, 1, 5), (Keys{0, 1}));
  const Mask wide_bottom = causal().bind(wide, Alignment::kBottomRight);
  EXPECT_EQ(wide_bottom.visible_keys(0, 0, 0, 5), (Keys{0, 1, 2, 3}));
  EXPECT_EQ(wide_bottom.visible_keys(0, 0, 1, 5), (Keys{0, 1, 2, 3, 4}));
  const Mask tall_top = causal().bind(tall);
  EXPECT_EQ(tall_top.visible_keys(0, 0, 0, 2), (Keys{0}));
  for (I q = 1; q < 5; ++q) EXPECT_EQ(tall_top.visible_keys(0, 0, q, 2), (Keys{0, 1})) << q;
  const Mask tall_bottom = causal().bind(tall, Alignment::kBottomRight);
  for (I q = 0; q < 3; ++q) EXPECT_EQ(tall_bottom.visible_keys(0, 0, q, 2), Keys{}) << q;
  EXPECT_EQ(tall_bottom.visible_keys(0, 0, 3, 2), (Keys{0}));
  EXPECT_EQ(tall_bottom.visible_keys(0, 0, 4, 2), (Keys{0, 1}));
}

// Every primitive about positions moves with the alignment, below operators and shifts too.
RC_GTEST_PROP(Bind, BottomRightMovesEveryPositionalPrimitive, ()) {
  const I seq_q = random_int(1, 40), seq_kv = random_int(1, 40), offset = seq_kv - seq_q;
  const std::vector<Mask> positional = {causal(1),
                                        window(3, 2),
                                        chunked(4),
                                        block_causal(3),
                                        block_window(3, 1, 0),
                                        prefix(5),
                                        sink(2),
                                        global(2, 3),
                                        global_tokens({1, 7}),
                                        dilated(9, 3),
                                        strided(2, 5),
                                        summary(4, 1),
                                        document({3, 9, 20}),
                                        neighbourhood({{30}, {5}, {}, {}, {}}),
                                        ~(causal() | prefix(2)),
                                        shifted(chunked(4), -3, -3),
                                        per_head({causal(), sliding(2)})};
  for (const Mask& mask : positional) {
    const Mask bound = mask.bind({1, 2, seq_q, seq_kv}, Alignment::kBottomRight);
    for (I q = 0; q < seq_q; ++q)
      for (I k = 0; k < seq_kv; ++k)
        RC_ASSERT(bound.visible(0, 1, q, k) == mask.visible(0, 1, q + offset, k));
  }
}

// docs/decisions.md: padding hides keys and never a query; what speaks of positions has them.
TEST(Bind, KeyLengthsStayWherePrefixAndPredicatesMove) {
  const ScoreShape shape{1, 1, 7, 4};  // queries 0 to 2 stand below 0
  const std::vector<I> one = {2};
  const PredicateTable lengths{"lengths", {one.data(), DType::kInt64, Dims{1}}};
  const auto keys = [&](const Mask& mask, Alignment alignment, I q) {
    return mask.bind(shape, alignment).visible_keys(0, 0, q, 4);
  };
  for (I q = 0; q < 7; ++q) {
    EXPECT_EQ(keys(key_lengths({2}), Alignment::kBottomRight, q), (Keys{0, 1}));
    for (const Mask& mask :
         {prefix(2), predicate("k < 2"), predicate("k < lengths[b]", {lengths})}) {
      EXPECT_EQ(keys(mask, Alignment::kBottomRight, q), q < 3 ? Keys{} : (Keys{0, 1}));
      EXPECT_EQ(keys(mask, Alignment::kTopLeft, q), (Keys{0, 1}));
    }
  }
}

TEST(Bind, BottomRightLeavesArraysWhereTheyAre) {
  const ScoreShape shape{1, 1, 2, 5};
  const Mask array = random_dense(1, 1, 2, 5), nodes = tree({-1, 0}, 3);
  for (I q = 0; q < 2; ++q)
    for (I k = 0; k < 5; ++k) {
      EXPECT_EQ(array.bind(shape, Alignment::kBottomRight).visible(0, 0, q, k),
                array.visible(0, 0, q, k));
      EXPECT_EQ(nodes.bind(shape, Alignment::kBottomRight).visible(0, 0, q, k),
                nodes.visible(0, 0, q, k));
    }
}

// Case 16: a dense mask whose extents are not the scores'.
TEST(Bind, RefusesDenseArraysOfOtherLengths) {
  const ScoreShape shape{1, 1, 10, 20};
  for (const auto& [rows, cols] :
       std::vector<std::pair<I, I>>{{10, 15}, {10, 25}, {5, 20}, {20, 10}})
    EXPECT_THAT(
        refusal([&, r = rows, c = cols] {
          dense_of({r, c}).bind(shape);
        }),
        AllOf(HasSubstr("dense"), HasSubstr("10, 20]"),
              HasSubstr("got [1, 1, " + std::to_string(rows) + ", " + std::to_string(cols) + "]")));
  EXPECT_EQ(refusal([&] { dense_of({10, 20}).bind(shape); }), "");
  EXPECT_EQ(refusal([&] { shifted(dense_of({5, 20}), -3, 0).bind(shape); }), "");
}

// Case 10: batch and head extents of 1 or n, a sliced row, and a batch of 3 on one of 2.
TEST(Bind, BroadcastsDenseExtentsOfOne) {
  const ScoreShape shape{2, 2, 8, 8};
  for (const I batch : {1, 2})
    for (const I heads : {1, 2})
      for (const I rows : {1, 8}) {
        const Mask whole = random_dense(batch, heads, rows, 8);
        const Mask mask = whole.bind(shape);
        EXPECT_EQ(mask.batch_extent(), batch);
        EXPECT_EQ(mask.head_extent(), heads);
        for (I b = 0; b < 2; ++b)
          for (I h = 0; h < 2; ++h)
            for (I q = 0; q < 8; ++q)
              EXPECT_EQ(
                  mask.visible_keys(b, h, q, 8),
                  whole.visible_keys(batch == 1 ? 0 : b, heads == 1 ? 0 : h, rows == 1 ? 0 : q, 8));
      }
  EXPECT_THAT(refusal([&] {
                dense_of({3, 1, 8, 8}).bind(shape);
              }),
              AllOf(HasSubstr("[1|2, 1|2, 1|8, 8]"), HasSubstr("got [3, 1, 8, 8]")));
}

TEST(Bind, ReadsASlicedRowOfADenseArray) {
  std::vector<std::uint8_t> bytes(8 * 8);
  for (std::size_t i = 0; i < 8; ++i) bytes[5 * 8 + i] = i % 3 == 0 ? 1 : 0;
  const TensorView row(bytes.data() + 5 * 8, DType::kBool, {1, 1, 1, 4}, {64, 64, 8, 2});
  const Mask mask = dense(row).bind({2, 2, 8, 4});
  EXPECT_EQ(mask.visible_keys(1, 1, 7, 4), (Keys{0, 3}));
}

TEST(Bind, RefusesListsThatDoNotFit) {
  const ScoreShape shape{2, 3, 10, 20};
  EXPECT_THAT(refusal([&] {
                key_lengths({1, 2, 3}).bind(shape);
              }),
              AllOf(HasSubstr("key_lengths"), HasSubstr("1 or 2"), HasSubstr("got 3")));
  EXPECT_THAT(refusal([&] { key_lengths({21}).bind(shape); }),
              AllOf(HasSubstr("lengths[0]=21"), HasSubstr("20 keys")));
  EXPECT_THAT(refusal([&] {
                intervals({{Keys(19), Keys(19)}}).bind(shape);
              }),
              AllOf(HasSubstr("intervals"), HasSubstr("length 20"), HasSubstr("got 19")));
  EXPECT_THAT(refusal([&] {
                tree({-1, 0, 1}, 17).bind(shape);
              }),
              AllOf(HasSubstr("tree"), HasSubstr("3"), HasSubstr("got 10 and 20")));
  EXPECT_THAT(refusal([&] {
                per_head({causal(), causal()}).bind(shape);
              }),
              AllOf(HasSubstr("per_head"), HasSubstr("1 or 3"), HasSubstr("got 2")));
  EXPECT_THAT(refusal([&] {
                per_batch({all(), all(), all()}).bind(shape);
              }),
              AllOf(HasSubstr("per_batch"), HasSubstr("1 or 2"), HasSubstr("got 3")));
  EXPECT_THAT(refusal([&] {
                per_head({key_lengths({1, 2}), per_head({all(), all()}), all()});
              }),
              AllOf(HasSubstr("head extent"), HasSubstr("3"), HasSubstr("2")));
  EXPECT_THAT(refusal([&] { causal().bind({0, 1, 4, 4}); }), HasSubstr("[0, 1, 4, 4]"));
}

TEST(Bind, RefusesBlockListsOfAnotherGrid) {
  const ScoreShape shape{1, 2, 10, 20};
  const auto list = [](I block_q, I block_kv, std::vector<std::vector<std::int32_t>> rows) {
    BlockList out;
    out.block_q = block_q;
    out.block_kv = block_kv;
    out.heads = {std::move(rows)};
    return out;
  };
  EXPECT_EQ(refusal([&] { block_list(list(4, 8, {{0}, {2}, {}})).bind(shape); }), "");
  EXPECT_THAT(refusal([&] {
                block_list(list(4, 8, {{0}, {2}})).bind(shape);
              }),
              AllOf(HasSubstr("3 block rows"), HasSubstr("got 2")));
  EXPECT_THAT(refusal([&] {
                block_list(list(4, 8, {{0}, {3}, {}})).bind(shape);
              }),
              AllOf(HasSubstr("heads[0][1]"), HasSubstr("below 3"), HasSubstr("got 3")));
  BlockList ragged = list(0, 8, {{0}, {1}});
  ragged.row_sizes = {4, 5};
  EXPECT_THAT(refusal([&] { block_list(ragged).bind(shape); }),
              AllOf(HasSubstr("row_sizes"), HasSubstr("10"), HasSubstr("got 9")));
  ragged.row_sizes = {4, 6};
  ragged.col_sizes = {4, 17};
  EXPECT_THAT(refusal([&] { block_list(ragged).bind(shape); }),
              AllOf(HasSubstr("col_sizes"), HasSubstr("20"), HasSubstr("got 21")));
  BlockList heads = list(4, 8, {{0}, {1}, {2}});
  heads.heads.resize(3, heads.heads.front());
  EXPECT_THAT(refusal([&] { block_list(heads).bind(shape); }),
              AllOf(HasSubstr("1 or 2 heads"), HasSubstr("got 3")));
}

// Case 21: a mask resolved for one length is not used with another.
TEST(Bind, StepsDrawTheRowsThatWholePassesDraw) {
  for (const Mask& mask :
       {random_elements(0.5, 1), random_elements(0.5, 1, true), random_blocks_rate(2, 0.5, 3),
        random_blocks_count(2, 2, 5), random_blocks_count(2, 2, 5, true),
        random_blocks_count(3, 1, 7) & causal()}) {
    constexpr I kKeys = 11, kHeads = 2;
    const Mask whole = mask.bind({1, kHeads, kKeys, kKeys}, Alignment::kTopLeft);
    for (const I queries : {1, 4, 10}) {
      const Mask step = mask.bind({1, kHeads, queries, kKeys}, Alignment::kBottomRight);
      for (I h = 0; h < kHeads; ++h)
        for (I q = 0; q < queries; ++q)
          EXPECT_EQ(step.visible_keys(0, h, q, kKeys),
                    whole.visible_keys(0, h, kKeys - queries + q, kKeys))
              << mask.describe() << " query " << q << " of " << queries;
    }
    // More queries than keys: those before key 0 see nothing.
    const Mask tall = mask.bind({1, kHeads, 5, 3}, Alignment::kBottomRight);
    EXPECT_EQ(tall.visible_keys(0, 0, 1, 3), Keys{}) << mask.describe();
  }
}

TEST(Bind, RefusesAMaskBoundToAnotherShape) {
  const Mask mask = bigbird().bind({1, 1, 8192, 8192});
  EXPECT_THAT(refusal([&] {
                mask.bind({1, 1, 1024, 1024});
              }),
              AllOf(HasSubstr("[1, 1, 8192, 8192]"), HasSubstr("[1, 1, 1024, 1024]")));
  EXPECT_THAT(refusal([&] { (mask & causal()).bind({1, 1, 1024, 1024}); }), HasSubstr("8192"));
  EXPECT_EQ(&mask.bind({1, 1, 8192, 8192}).node(), &mask.node());
  const Mask aligned = causal().bind({1, 1, 4, 8}, Alignment::kBottomRight);
  EXPECT_THAT(refusal([&] {
                aligned.bind({1, 1, 4, 8});
              }),
              AllOf(HasSubstr("bottom_right"), HasSubstr("top_left")));
}

TEST(Bind, CannotMarkAnUnresolvedMaskAsBound) {
  EXPECT_NE(refusal([] { make_bound(random_blocks_count(4, 1, 0), {1, 1, 8, 8}, {}); }), "");
  EXPECT_NE(refusal([] { make_bound(key_lengths({1, 2}), {3, 1, 8, 8}, {}); }), "");
}

TEST(Arguments, AreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const I huge = std::numeric_limits<I>::max();
  const auto blocks = [](std::vector<std::int32_t> row) {
    BlockList list;
    list.block_q = list.block_kv = 8;
    list.heads = {{std::move(row)}};
    return list;
  };
  const std::vector<std::pair<std::function<void()>, const char*>> refused = {
      {[&] { causal(huge); }, "causal(offset="},
      {[&] { window(huge, 0); }, "window(left="},
      {[&] { chunked(0); }, "chunked(n=0)"},
      {[&] { block_causal(-1); }, "block_causal(n=-1)"},
      {[&] { block_window(0, 1, 1); }, "block_window(block=0)"},
      {[&] { prefix(-1); }, "prefix(n=-1)"},
      {[&] { sink(-2); }, "sink(n=-2)"},
      {[&] { global(-1, 0); }, "global(rows=-1)"},
      {[&] { global(0, -1); }, "global(cols=-1)"},
      {[&] {
         global_tokens({3, -1});
       },
       "global_tokens(tokens[1]=-1)"},
      {[&] { dilated(-1, 1); }, "dilated(window=-1)"},
      {[&] { dilated(1, 0); }, "dilated(rate=0)"},
      {[&] { strided(-1, 1); }, "strided(local=-1)"},
      {[&] { strided(1, 0); }, "strided(stride=0)"},
      {[&] { summary(4, 5); }, "summary(stride=4, count=5)"},
      {[&] {
         document({3, -1});
       },
       "document(lengths[1]=-1)"},
      {[&] {
         document({huge, huge});
       },
       "document(lengths[0]="},
      {[&] { key_lengths({}); }, "key_lengths(lengths=[])"},
      {[&] { key_lengths({-1}); }, "key_lengths(lengths[0]=-1)"},
      {[&] {
         neighbourhood({{}, {}, {}, {}, {}});
       },
       "neighbourhood(grid)"},
      {[&] {
         neighbourhood({{4, 4}, {3}, {}, {}, {}});
       },
       "neighbourhood(kernel)"},
      {[&] {
         neighbourhood({{4}, {0}, {}, {}, {}});
       },
       "neighbourhood(kernel=0)"},
      {[&] {
         neighbourhood({{1 << 30, 1 << 30}, {1, 1}, {}, {}, {}});
       },
       "neighbourhood(grid)"},
      {[&] {
         tree({-1, 1});
       },
       "tree(parents[1]=1)"},
      {[&] { tree({-2}); }, "tree(parents[0]=-2)"},
      {[&] { block_list({}); }, "block_list(block_q=0)"},
      {[&] {
         block_list(blocks({1, 0, 1}));
       },
       "block column 1 is listed twice"},
      {[&] { block_list(blocks({-1})); }, "block_list(heads[0][0])"},
      {[&] { random_blocks_count(0, 1, 0); }, "random_blocks(block=0)"},
      {[&] { random_blocks_count(1, -1, 0); }, "random_blocks(count=-1)"},
      {[&] {
         random_blocks_count(1, 1, 0).bind({1, 1, I{1} << 31, I{1} << 31});
       },
       "larger blocks"},
      {[&] { random_blocks_rate(1, nan, 0); }, "random_blocks_rate(rate=nan)"},
      {[&] { random_elements(1.5, 0); }, "random_elements(rate=1.5)"},
      {[&] { random_elements(-0.1, 0); }, "random_elements(rate=-0.1)"},
      {[&] { intervals({}); }, "intervals()"},
      {[&] {
         intervals({{{1, 2}, {3}}});
       },
       "intervals(list 0)"},
      {[&] {
         dense(TensorView(nullptr, DType::kBool, {2, 2}));
       },
       "dense"},
      {[&] {
         dense(TensorView(&nan, DType::kFloat64, {1, 1}));
       },
       "got float64"},
      {[&] {
         dense(TensorView(&nan, DType::kBool, {1, 1, 1}));
       },
       "rank 3"},
      {[&] { shifted(all(), huge, 0); }, "shifted(dq="},
      {[&] { per_head({}); }, "per_head()"},
      {[&] { sliding(-1); }, "sliding(w=-1)"},
      {[&] { longformer(-1, 0); }, "longformer(w=-1)"},
      {[&] { bigbird(0); }, "bigbird(block=0)"},
      {[&] { streaming(4, -1); }, "streaming(w=-1)"},
      {[&] {
         all().classify(0, 0, {3, 3, 0, 1});
       },
       "classify"},
      {[&] { all().visible_keys(0, 0, 0, -1); }, "visible_keys"},
      {[&] {
         key_lengths({1, 2}).visible(2, 0, 0, 0);
       },
       "batch index in [0, 2), got 2"},
  };
  for (const auto& [action, expected] : refused) EXPECT_THAT(refusal(action), HasSubstr(expected));
}

}  // namespace
}  // namespace stof::mask::testing
