// Primitives that hold lists or arrays, against those lists walked naively.

#include <algorithm>
#include <set>
#include <vector>

#include "mask/brute_force.h"
#include "mask/node_factories.h"
#include "stof/error.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;

std::vector<I> random_list(I max_size, I lo, I hi) {
  std::vector<I> list(static_cast<std::size_t>(random_int(0, max_size)));
  for (I& value : list) value = random_int(lo, hi);
  return list;
}

RC_GTEST_PROP(GlobalTokens, MatchesTheListedTokens, ()) {
  const std::vector<I> tokens = random_list(30, 0, random_int(3, 100));
  const bool rows = random_int(0, 1) != 0, cols = random_int(0, 1) != 0;
  const std::set<I> listed(tokens.begin(), tokens.end());
  check_mask(
      global_tokens(tokens, rows, cols),
      [&](I, I, I q, I k) {
        return q >= 0 && k >= 0 && ((rows && listed.count(q)) || (cols && listed.count(k)));
      },
      -20, 120);
}

RC_GTEST_PROP(KeyLengths, HidesTheKeysPastEachLength, ()) {
  std::vector<I> lengths = random_list(4, 0, 60);
  lengths.push_back(random_int(0, 60));
  const Mask mask = key_lengths(lengths);
  RC_ASSERT(mask.batch_extent() == static_cast<I>(lengths.size()));
  for (std::size_t b = 0; b < lengths.size(); ++b)
    check_mask(
        mask, [&](I, I, I q, I k) { return q >= 0 && k >= 0 && k < lengths[b]; }, -20, 90,
        Precision::kExact, static_cast<I>(b));
}

/// One side of a block grid: the block of every token.
struct Side {
  I block = 0;
  std::vector<I> sizes;   ///< ragged, or empty
  std::vector<I> labels;  ///< [tokens]
  I num_blocks = 0;
};

Side random_side() {
  Side side;
  side.num_blocks = random_int(1, 7);
  const bool ragged = random_int(0, 1) != 0;
  if (!ragged) side.block = random_int(1, 20);
  for (I b = 0; b < side.num_blocks; ++b) {
    const I size = ragged ? random_int(0, 20) : side.block;
    if (ragged) side.sizes.push_back(size);
    side.labels.insert(side.labels.end(), static_cast<std::size_t>(size), b);
  }
  return side;
}

RC_GTEST_PROP(BlockList, MatchesTheListedBlocks, ()) {
  const Side rows = random_side(), cols = random_side();
  BlockList list;
  list.block_q = rows.block;
  list.block_kv = cols.block;
  list.row_sizes = rows.sizes;
  list.col_sizes = cols.sizes;
  const I heads = random_int(1, 3), fill = random_int(0, 100);
  for (I h = 0; h < heads; ++h) {
    auto& head = list.heads.emplace_back(static_cast<std::size_t>(rows.num_blocks));
    for (auto& row : head)
      for (I c = cols.num_blocks - 1; c >= 0; --c)
        if (random_int(0, 99) < fill) row.push_back(static_cast<std::int32_t>(c));
  }
  const Mask mask = block_list(list);
  RC_ASSERT(mask.head_extent() == heads);
  const auto label = [](const Side& side, I position) {
    return position < 0 || position >= static_cast<I>(side.labels.size())
               ? I{-1}
               : side.labels[static_cast<std::size_t>(position)];
  };
  for (I h = 0; h < heads; ++h)
    check_mask(
        mask,
        [&](I, I, I q, I k) {
          const I r = label(rows, q), c = label(cols, k);
          if (r < 0 || c < 0) return false;
          const auto& row = list.heads[static_cast<std::size_t>(h)][static_cast<std::size_t>(r)];
          return std::find(row.begin(), row.end(), c) != row.end();
        },
        -20, 150, Precision::kExact, 0, h);
}

RC_GTEST_PROP(Tree, MatchesAWalkToTheRoot, ()) {
  const I size = random_int(0, 60), prefix = random_int(0, 20), bushy = random_int(1, 10);
  std::vector<I> parents;
  for (I i = 0; i < size; ++i) parents.push_back(random_int(std::max<I>(i - bushy, -1), i - 1));
  check_mask(
      tree(parents, prefix),
      [&](I, I, I q, I k) {
        if (q < 0 || q >= size || k < 0) return false;
        if (k < prefix) return true;
        for (I node = q; node >= 0; node = parents[static_cast<std::size_t>(node)])
          if (node == k - prefix) return true;
        return false;
      },
      -10, 100);
}

TEST(Tree, AnswersAtOnceInADeepChain) {
  std::vector<I> parents;
  constexpr I kSize = 1 << 18;
  for (I i = 0; i < kSize; ++i) parents.push_back(i - 1);
  const Mask mask = tree(parents);
  for (I q = 0; q < kSize; q += 1001) {
    EXPECT_EQ(mask.row_bits(0, 0, q, 0), q >= 63 ? ~std::uint64_t{0} : (2ULL << q) - 1);
    EXPECT_EQ(mask.visible(0, 0, q, q / 2), true);
    EXPECT_EQ(mask.visible(0, 0, q, q + 1), false);
  }
  EXPECT_EQ(mask.classify(0, 0, {kSize / 2, kSize, 0, kSize / 2}), TileClass::kFull);
}

RC_GTEST_PROP(Intervals, HidesTheListedRows, ()) {
  const I lists = random_int(1, 4), columns = random_int(0, 140), longest = random_int(1, 60);
  const bool smooth = random_int(0, 1) != 0;
  std::vector<HiddenRows> hidden(static_cast<std::size_t>(lists));
  for (auto& list : hidden)
    for (I k = 0; k < columns; ++k) {
      if (smooth && k > 0 && random_int(0, 30) != 0) {
        list.begin.push_back(list.begin.back());
        list.end.push_back(list.end.back());
        continue;
      }
      list.begin.push_back(random_int(0, 80));
      list.end.push_back(std::max<I>(list.begin.back() + random_int(-5, longest), 0));
    }
  check_mask(
      intervals(hidden),
      [&](I, I, I q, I k) {
        if (q < 0 || k < 0 || k >= columns) return false;
        return std::none_of(hidden.begin(), hidden.end(), [&](const HiddenRows& list) {
          return list.begin[static_cast<std::size_t>(k)] <= q &&
                 q < list.end[static_cast<std::size_t>(k)];
        });
      },
      -20, 150);
}

RC_GTEST_PROP(Dense, MatchesTheArray, ()) {
  const bool four = random_int(0, 1) != 0;
  const I batch = four ? random_int(1, 3) : 1, heads = four ? random_int(1, 3) : 1;
  const I rows = random_int(1, 150), cols = random_int(1, 150), fill = random_int(0, 4);
  // A slice of a larger, transposed array: strides are [.., .., 1, pitch].
  const I pitch = rows + random_int(0, 3);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(batch * heads * cols * pitch));
  const I block = random_int(1, 80);
  for (I p = 0; p < batch * heads; ++p)
    for (I k = 0; k < cols; ++k)
      for (I q = 0; q < pitch; ++q)
        bytes[static_cast<std::size_t>((p * cols + k) * pitch + q)] =
            static_cast<std::uint8_t>((q / block * 7 + k / block * 13 + p) % 5 < fill ? 1 : 0);
  const TensorView view = four ? TensorView(bytes.data(), DType::kBool, {batch, heads, rows, cols},
                                            {heads * cols * pitch, cols * pitch, 1, pitch})
                               : TensorView(bytes.data(), DType::kBool, {rows, cols}, {1, pitch});
  const Mask mask = dense(view);
  RC_ASSERT(mask.batch_extent() == batch);
  RC_ASSERT(mask.head_extent() == heads);
  const I b = random_int(0, batch - 1), h = random_int(0, heads - 1);
  check_mask(
      mask,
      [&](I, I, I q, I k) {
        if (rows == 1 && q > 0) q = 0;  // one row serves all queries
        if (q < 0 || q >= rows || k < 0 || k >= cols) return false;
        return bytes[static_cast<std::size_t>(((b * heads + h) * cols + k) * pitch + q)] != 0;
      },
      -20, 170, Precision::kExact, b, h);
  // Large rectangles use the sums of tiles.
  const I q0 = random_int(0, rows - 1), k0 = random_int(0, cols - 1);
  const TileRect large{q0, random_int(q0 + 1, rows), k0, random_int(k0 + 1, cols)};
  RC_ASSERT(mask.classify(b, h, large) == classify_by_pairs(predicate_of(mask), b, h, large));
}

// One odd pixel anywhere, so that every margin around the summed tiles is counted.
TEST(Dense, FindsOneOddPixelInLargeRectangles) {
  constexpr I kSize = 200;
  for (const std::uint8_t rest : {0, 1})
    for (const I pixel : {5, 63, 64, 100, 127, 128, 191, 192, 199})
      for (const bool transposed : {false, true}) {
        std::vector<std::uint8_t> bytes(kSize * kSize, rest);
        const I q = transposed ? pixel : 100, k = transposed ? 100 : pixel;
        bytes[static_cast<std::size_t>(q * kSize + k)] = 1 - rest;
        const Mask mask = dense(TensorView(bytes.data(), DType::kBool, {kSize, kSize}));
        const TileClass uniform = rest != 0 ? TileClass::kFull : TileClass::kEmpty;
        EXPECT_EQ(mask.classify(0, 0, {q, q + 1, k, k + 1}),
                  rest != 0 ? TileClass::kEmpty : TileClass::kFull);
        for (const I begin : {0, 3, 60})
          EXPECT_EQ(mask.classify(0, 0, {begin, kSize - 1, begin, kSize - 1}),
                    pixel >= begin && pixel < kSize - 1 ? TileClass::kPartial : uniform)
              << "pixel " << pixel << ", from " << begin;
      }
}

TEST(Intervals, JoinWhereTheyTouchAndEndWhereTheySay) {
  const std::size_t columns = 70;
  const auto rows = [&](I begin, I end) {
    return HiddenRows{std::vector<I>(columns, begin), std::vector<I>(columns, end)};
  };
  const Mask mask = intervals({rows(5, 9), rows(0, 5)});
  EXPECT_EQ(mask.classify(0, 0, {3, 8, 0, 70}), TileClass::kEmpty);
  EXPECT_EQ(mask.classify(0, 0, {0, 9, 0, 70}), TileClass::kEmpty);
  EXPECT_EQ(mask.classify(0, 0, {8, 10, 0, 64}), TileClass::kPartial);
  EXPECT_EQ(mask.classify(0, 0, {9, 30, 0, 70}), TileClass::kFull);
}

TEST(Dense, RefusesBitsPastTheEndOfARow) {
  BitArray bits;
  bits.shape[2] = 2;
  bits.shape[3] = 65;
  bits.words = {0, 1, 0, 2};
  EXPECT_THROW(dense_of_bits(std::make_shared<BitArray>(bits)), Error);
  bits.words[3] = 0;
  EXPECT_EQ(dense_of_bits(std::make_shared<BitArray>(bits)).visible_keys(0, 0, 0, 65),
            std::vector<I>{64});
}

}  // namespace
}  // namespace stof::mask::testing
