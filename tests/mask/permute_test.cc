#include "mask/permute.h"

#include <gtest/gtest.h>

#include "stof/block_mask.h"

namespace stof::mask {
namespace {

constexpr ScoreShape kShape{1, 1, 384, 384};

std::int64_t token(std::int64_t p, std::int64_t step) {
  return p % (384 / step) * step + p / (384 / step);
}

std::vector<Mask> examples() {
  return {dilated(100, 2), causal() & strided(40, 12), (causal() & dilated(60, 4)) | global(3, 5),
          shifted(dilated(50, 3), 7, -2) & ~window(10, 10), chunked(100) & strided(5, 8)};
}

TEST(Permuted, MovesEveryPairToItsNewPlace) {
  for (const Mask& mask : examples())
    for (const std::int64_t step : {1, 2, 3, 4, 8, 12, 128}) {
      const Mask moved = permuted(mask, kShape, step);
      for (std::int64_t q = 0; q < 384; q += 5)
        for (std::int64_t k0 = 0; k0 < 384; k0 += 64) {
          const std::uint64_t bits = moved.row_bits(0, 0, q, k0);
          for (std::int64_t j = 0; j < 64; ++j)
            ASSERT_EQ(bits >> j & 1, mask.visible(0, 0, token(q, step), token(k0 + j, step)))
                << mask.describe() << " step " << step << " q " << q << " k " << k0 + j;
        }
    }
}

TEST(Permuted, ClassifiesTilesSoundly) {
  for (const Mask& mask : examples())
    for (const std::int64_t step : {2, 3, 4, 12, 128}) {
      const Mask moved = permuted(mask, kShape, step);
      for (std::int64_t q0 = 0; q0 < 384; q0 += 32)
        for (std::int64_t k0 = 0; k0 < 384; k0 += 24) {
          bool any = false, every = true;
          for (std::int64_t q = q0; q < q0 + 32; ++q)
            for (std::int64_t k = k0; k < k0 + 24; ++k) {
              const bool sees = moved.visible(0, 0, q, k);
              any |= sees;
              every &= sees;
            }
          const TileClass found = moved.classify(0, 0, {q0, q0 + 32, k0, k0 + 24});
          EXPECT_FALSE(found == TileClass::kFull && !every) << mask.describe();
          EXPECT_FALSE(found == TileClass::kEmpty && any) << mask.describe();
        }
    }
}

TEST(Permuted, MakesADilatedMaskDense) {
  const ScoreShape shape{1, 1, 4096, 4096};
  const Mask mask = dilated(512, 2).bind(shape);
  ASSERT_EQ(permutation_candidates(mask, shape), std::vector<std::int64_t>{2});
  const auto before = compute_stats(build_block_mask(mask, shape));
  const auto after = compute_stats(build_block_mask(permuted(mask, shape, 2), shape));
  EXPECT_EQ(before.visible_pairs, after.visible_pairs);
  EXPECT_EQ(before.tiles[2].full, 0);
  EXPECT_GT(after.tiles[2].full, after.tiles[2].partial);
}

TEST(Permuted, IsNotTriedWhereAStridedMasksBandReachesAllResidues) {
  const ScoreShape shape{1, 1, 4096, 4096};
  const auto candidates = [&](const Mask& mask) {
    return permutation_candidates(mask.bind(shape), shape);
  };
  EXPECT_EQ(candidates(causal() & strided(127, 128)), std::vector<std::int64_t>{128});
  EXPECT_TRUE(candidates(causal() & strided(128, 128)).empty());
  EXPECT_EQ(candidates(strided(128, 128) | dilated(64, 4)), std::vector<std::int64_t>{4});
}

// Strips repeat along the diagonal: what is built from the ones above must be what is built anew.
TEST(BlockMask, RepeatsStripsAlongTheDiagonal) {
  const Mask nothing = chunked(1) & ~chunked(1);  // of no known period
  const auto same = [](const Mask& mask, const Mask& anew, const ScoreShape& shape) {
    const BlockMask repeated = build_block_mask(mask, shape);
    repeated.validate();
    EXPECT_EQ(repeated.fingerprint(), build_block_mask(anew, shape).fingerprint())
        << mask.describe() << " of " << shape.to_string();
  };
  for (const Mask& mask : {all(), none(), causal(-70), window(130, 5), ~window(200, 64),
                           causal() & strided(40, 96), dilated(500, 3), shifted(causal(), 100, 7)})
    for (const auto& [seq_q, seq_kv] : {std::pair{640, 640},
                                        {700, 640},
                                        {640, 700},
                                        {130, 1000},
                                        {1000, 130},
                                        {70, 30},
                                        {64, 64},
                                        {703, 703}})
      same(mask, mask | nothing, {1, 1, seq_q, seq_kv});
  for (const Mask& mask : examples())
    for (const auto& [seq, step] : {std::pair{384, 2}, {384, 12}, {1024, 8}, {2048, 128}}) {
      const ScoreShape shape{1, 1, seq, seq};
      same(permuted(mask, shape, step), permuted(mask | nothing, shape, step), shape);
    }
}

TEST(SplitStrided, PartsAreDisjointAndTogetherTheMask) {
  for (const Mask& mask :
       {causal() & strided(40, 12), strided(3, 5), causal() & chunked(100) & strided(5, 8)}) {
    const auto parts = split_strided(mask.bind(kShape));
    ASSERT_EQ(parts.size(), 2u);
    for (std::int64_t q = 0; q < 384; q += 3)
      for (std::int64_t k = 0; k < 384; ++k) {
        const int count = parts[0].mask.visible(0, 0, q, k) + parts[1].mask.visible(0, 0, q, k);
        ASSERT_EQ(count, mask.visible(0, 0, q, k)) << mask.describe() << " q " << q << " k " << k;
      }
  }
  EXPECT_TRUE(split_strided(causal()).empty());
}

}  // namespace
}  // namespace stof::mask
