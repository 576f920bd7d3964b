// Masks as models and servers use them, by the keys a query sees.

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "mask/brute_force.h"
#include "mask/random.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;
using Keys = std::vector<I>;

/// first .. last, both inclusive.
Keys range(I first, I last) {
  Keys keys(static_cast<std::size_t>(std::max<I>(last - first + 1, 0)));
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

Keys join(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Keys seen(const Mask& mask, I q, I seq_kv, I b = 0) { return mask.visible_keys(b, 0, q, seq_kv); }

// Case 18: ragged block rows [1,2,3] and columns [3,1,2] over 6 tokens.
TEST(ModelMasks, RaggedBlocksKeepTheirBorders) {
  BlockList list;
  list.row_sizes = {1, 2, 3};
  list.col_sizes = {3, 1, 2};
  list.heads = {{{0}, {1, 2}, {2, 0}}};
  const Mask mask = block_list(list).bind({1, 1, 6, 6});
  EXPECT_EQ(seen(mask, 0, 6), (Keys{0, 1, 2}));
  for (const I q : {1, 2}) EXPECT_EQ(seen(mask, q, 6), (Keys{3, 4, 5}));
  for (const I q : {3, 4, 5}) EXPECT_EQ(seen(mask, q, 6), (Keys{0, 1, 2, 4, 5}));
}

// Case 22: predicates that are the same everywhere.
TEST(ModelMasks, UniformPredicatesAreFullOrEmptyTiles) {
  std::vector<std::uint8_t> bytes(100 * 100, 1);
  const TensorView view(bytes.data(), DType::kBool, {100, 100});
  EXPECT_EQ(dense(view).classify(0, 0, {0, 100, 0, 100}), TileClass::kFull);
  EXPECT_EQ(dense(view).classify(0, 0, {0, 128, 0, 128}), TileClass::kPartial);
  EXPECT_EQ((~dense(view)).classify(0, 0, {0, 100, 0, 100}), TileClass::kEmpty);
  EXPECT_EQ((causal() | ~causal()).classify(0, 0, {0, 1, 0, 1}), TileClass::kFull);
  EXPECT_EQ(all().classify(0, 0, {0, 128, 0, 128}), TileClass::kFull);
  EXPECT_EQ(none().classify(0, 0, {0, 128, 0, 128}), TileClass::kEmpty);
}

// Case 34: windows are inclusive.
TEST(ModelMasks, WindowsAreInclusive) {
  const Mask four_tokens = causal() & window(3, 0);
  EXPECT_EQ(seen(four_tokens, 9, 10), range(6, 9));
  EXPECT_EQ(seen(four_tokens, 2, 10), range(0, 2));
  EXPECT_EQ(seen(sliding(4), 8, 16), range(4, 12));
}

// Case 35: a window to both sides, alone and with padded keys.
TEST(ModelMasks, BidirectionalWindowsReachBothWays) {
  EXPECT_EQ(seen(sliding(64), 0, 300), range(0, 64));
  EXPECT_EQ(seen(sliding(64), 150, 300), range(86, 214));
  const Mask padded = (sliding(64) & key_lengths({280})).bind({1, 1, 300, 300});
  EXPECT_EQ(seen(padded, 150, 300), range(86, 214));
  EXPECT_EQ(seen(padded, 250, 300), range(186, 279));
}

// Case 36: an image of tokens 2..9 among text, under a window.
TEST(ModelMasks, ImagesAreSeenWholeUnlessAWindowCuts) {
  BlockList list;
  list.row_sizes = list.col_sizes = {2, 8, 2};
  list.heads = {{{}, {1}, {}}};
  const Mask visible = causal() | block_list(list);
  EXPECT_EQ(seen(visible, 3, 12), range(0, 9));
  EXPECT_EQ(seen(visible & window(3, -1), 9, 12), range(6, 9));
  EXPECT_EQ(seen(visible & window(3, -1), 11, 12), range(8, 11));
  EXPECT_EQ(seen(visible & window(3, -1), 3, 12), range(0, 9));
  EXPECT_EQ(seen(visible & window(3, 3), 3, 12), range(0, 6));
  EXPECT_EQ(seen(visible & window(3, 3), 9, 12), range(6, 9));
}

// Case 37: chunks of 4 behind 3 tokens of left padding.
TEST(ModelMasks, ChunksStartBehindLeftPadding) {
  const Mask mask = causal() & shifted(chunked(4), -3, -3);
  for (const I q : {0, 1, 2}) EXPECT_EQ(seen(mask, q, 10), Keys{});
  EXPECT_EQ(seen(mask, 6, 10), range(3, 6));
  EXPECT_EQ(seen(mask, 7, 10), (Keys{7}));
  EXPECT_EQ(seen(mask, 9, 10), range(7, 9));
}

// Case 38: two packed sequences under an all-ones padding mask.
TEST(ModelMasks, PackedSequencesStayApart) {
  const Mask mask = causal() & document({3, 5}) & key_lengths({8});
  EXPECT_EQ(seen(mask, 4, 8), (Keys{3, 4}));
  EXPECT_EQ(seen(mask, 2, 8), range(0, 2));
}

// Case 39: key masks with holes are gathered, not counted.
TEST(ModelMasks, KeyMasksKeepTheirHoles) {
  const std::vector<std::uint8_t> bytes = {1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1};
  const Mask mask = dense(TensorView(bytes.data(), DType::kBool, {2, 1, 1, 8})).bind({2, 4, 8, 8});
  for (I q = 0; q < 8; ++q) {
    EXPECT_EQ(seen(mask, q, 8, 0), (Keys{0, 1, 4, 5, 7}));
    EXPECT_EQ(seen(mask, q, 8, 1), range(3, 7));
  }
}

// Case 40: cross-attention to 6 and 4 valid keys.
TEST(ModelMasks, CrossAttentionSeesTheValidKeysFromEveryRow) {
  for (const Alignment alignment : {Alignment::kTopLeft, Alignment::kBottomRight}) {
    const Mask mask = key_lengths({6, 4}).bind({2, 1, 64, 10}, alignment);
    for (I q = 0; q < 64; ++q) {
      EXPECT_EQ(seen(mask, q, 10, 0), range(0, 5));
      EXPECT_EQ(seen(mask, q, 10, 1), range(0, 3));
    }
  }
}

// Case 45: items that are scored apart behind one prefix.
TEST(ModelMasks, ScoredItemsSeeThePrefixAndThemselves) {
  const Mask mask = causal() & (prefix(5) | document({5, 3, 2, 4}));
  EXPECT_EQ(seen(mask, 8, 14), (Keys{0, 1, 2, 3, 4, 8}));
  EXPECT_EQ(seen(mask, 9, 14), (Keys{0, 1, 2, 3, 4, 8, 9}));
  EXPECT_EQ(seen(mask, 7, 14), range(0, 7));
  EXPECT_EQ(seen(mask, 3, 14), range(0, 3));
}

// Case 46: block diffusion, the last queries of a longer key sequence.
TEST(ModelMasks, BlockDiffusionSeesItsWholeBlock) {
  const Mask mask = block_causal(4).bind({1, 1, 4, 10}, Alignment::kBottomRight);
  EXPECT_EQ(seen(mask, 0, 10), range(0, 7));
  EXPECT_EQ(seen(mask, 1, 10), range(0, 7));
  EXPECT_EQ(seen(mask, 2, 10), range(0, 9));
  EXPECT_EQ(seen(mask, 3, 10), range(0, 9));
  const Mask large = block_causal(32).bind({1, 1, 32, 544}, Alignment::kBottomRight);
  EXPECT_EQ(large.classify(0, 0, {0, 32, 0, 544}), TileClass::kFull);
}

// --- presets ---

TEST(Presets, BigbirdIsTheUnionOfItsParts) {
  const I seq = 512, block = 64;
  const Mask mask = bigbird(64, 1, 2, 3, 9).bind({1, 1, seq, seq});
  for (I q = 0; q < seq; q += 37) {
    // The three columns of smallest key.
    std::vector<std::pair<std::uint64_t, I>> keys;
    for (I c = 0; c < seq / block; ++c) keys.emplace_back(RandomRow(9, 0, q / block).key(c), c);
    std::sort(keys.begin(), keys.end());
    Keys expected;
    for (I k = 0; k < seq; ++k) {
      bool drawn = false;
      for (std::size_t i = 0; i < 3; ++i) drawn |= keys[i].second == k / block;
      if (std::abs(q / block - k / block) <= 1 || q < 128 || k < 128 || drawn)
        expected.push_back(k);
    }
    EXPECT_EQ(seen(mask, q, seq), expected) << q;
  }
}

TEST(Presets, AreWhatTheirPapersSay) {
  EXPECT_EQ(seen(bert_padding({2, 3}), 4, 5, 1), range(0, 2));
  EXPECT_EQ(seen(sliding(2), 5, 20), range(3, 7));
  EXPECT_EQ(seen(longformer(2, 3), 10, 20), join(range(0, 2), range(8, 12)));
  EXPECT_EQ(seen(longformer(2, 3), 2, 20), range(0, 19));
  EXPECT_EQ(seen(streaming(2, 3), 10, 20), (Keys{0, 1, 7, 8, 9, 10}));
  EXPECT_EQ(seen(sparse_transformer_strided(2, 4), 10, 20), (Keys{2, 6, 8, 9, 10}));
  EXPECT_EQ(seen(sparse_transformer_fixed(4, 1), 10, 20), (Keys{3, 7, 8, 9, 10}));
}

TEST(Presets, HaveTheDocumentedDefaults) {
  EXPECT_EQ(seen(sliding(), 1000, 4096), range(744, 1256));
  EXPECT_EQ(seen(longformer(), 1000, 4096), join(range(0, 63), range(744, 1256)));
  EXPECT_EQ(seen(streaming(), 3000, 4096), join(range(0, 3), range(1976, 3000)));
  EXPECT_EQ(seen(sparse_transformer_fixed(), 300, 512),
            join(join(range(120, 127), range(248, 255)), range(256, 300)));
  EXPECT_EQ(seen(sparse_transformer_strided(), 300, 512), join({44}, range(172, 300)));
}

// --- positions past 32 bits ---

TEST(LargePositions, DoNotOverflow) {
  const I last = (I{1} << 31) - 1, seq = I{1} << 31;
  EXPECT_EQ(causal().classify(0, 0, {0, seq, 0, seq}), TileClass::kPartial);
  EXPECT_EQ(causal().classify(0, 0, {seq / 2, seq, 0, seq / 2}), TileClass::kFull);
  EXPECT_EQ(causal().classify(0, 0, {0, seq / 2, seq / 2, seq}), TileClass::kEmpty);
  EXPECT_EQ(seen(window(3, 0), last, seq), range(last - 3, last));
  EXPECT_EQ(seen(chunked(4), last, seq), range(last - 3, last));
  EXPECT_EQ(seen(block_causal(4) & window(4, -1), last, seq), range(last - 4, last));
  EXPECT_EQ(seen(document({last - 2, 3}), last, seq), range(last - 2, last));
  EXPECT_EQ(seen(global_tokens({last}), 5, seq), (Keys{last}));
  EXPECT_EQ(seen(dilated(last, 1 << 30), last, seq), (Keys{(I{1} << 30) - 1, last}));
  EXPECT_EQ(seen(strided(0, 1 << 30), last, seq), (Keys{(I{1} << 30) - 1, last}));
  EXPECT_EQ(seen(summary(1 << 30, 1), 0, seq), (Keys{(I{1} << 30) - 1, last}));
  EXPECT_EQ(seen(sink(2) & causal(), last, seq), (Keys{0, 1}));
  EXPECT_EQ(seen(neighbourhood({{seq}, {3}, {}, {}, {}}), last, seq), range(last - 2, last));
  EXPECT_EQ(seen(global(0, 1) | ~all(), last, seq), (Keys{0}));
}

TEST(LargePositions, HoldForTheLargestArguments) {
  const I most = I{1} << 40;
  const std::vector<Mask> masks = {causal(most),
                                   causal(-most),
                                   window(most, most),
                                   chunked(most),
                                   block_causal(most),
                                   prefix(most),
                                   global(most, most),
                                   dilated(most, most),
                                   strided(most, most),
                                   summary(most, most),
                                   document({most}),
                                   block_window(most, most, most),
                                   neighbourhood({{most}, {most}, {most}, {most}, {most}}),
                                   random_blocks_rate(most, 0.5, 1),
                                   random_elements(1e-300, 1),
                                   global_tokens({most})};
  for (const Mask& mask : masks) {
    const Mask far = shifted(shifted(mask, most, -most), most, -most);
    for (const Mask& m : {mask, far, ~far})
      for (const I begin : {-most, I{0}, most - 64}) {
        const TileRect rect{begin, begin + 64, begin, begin + 64};
        const TileClass found = m.classify(0, 0, rect);
        const std::uint64_t bits = m.row_bits(0, 0, begin, begin);
        if (found != TileClass::kPartial) {
          EXPECT_EQ(bits, found == TileClass::kFull ? ~std::uint64_t{0} : 0);
        }
        for (int i = 0; i < 64; ++i)
          EXPECT_EQ(m.visible(0, 0, begin, begin + i), (bits >> i & 1) != 0);
      }
  }
}

}  // namespace
}  // namespace stof::mask::testing
