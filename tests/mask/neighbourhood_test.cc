// Neighbourhoods, against a definition by enumeration.

#include <algorithm>
#include <set>
#include <vector>

#include "mask/brute_force.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;

/// The tiles that tile u of `num_tiles` sees: all of its group in order, then the `kernel` of them
/// around u, pushed inside at the border.
std::set<I> tiles_seen(I u, I num_tiles, I kernel, I dilation) {
  std::vector<I> group;
  for (I v = 0; v < num_tiles; ++v)
    if ((v - u) % dilation == 0) group.push_back(v);
  const I count = static_cast<I>(group.size());
  I first = std::find(group.begin(), group.end(), u) - group.begin() - kernel / 2;
  while (first + kernel > count) --first;
  while (first < 0) ++first;
  std::set<I> seen;
  for (I i = first; i < std::min(first + kernel, count); ++i)
    seen.insert(group[static_cast<std::size_t>(i)]);
  return seen;
}

bool axis_sees(const Neighbourhood& n, std::size_t d, I q, I k) {
  const I tile = n.tile[d], shift = ((n.shift[d] % tile) + tile) % tile;
  const I num_tiles = (n.grid[d] - 1 + shift) / tile + 1;
  return tiles_seen((q + shift) / tile, num_tiles, n.kernel[d], n.dilation[d])
             .count((k + shift) / tile) > 0;
}

RC_GTEST_PROP(Neighbourhood, MatchesItsDefinition, ()) {
  Neighbourhood n;
  const I rank = random_int(1, 3);
  I size = 1;
  for (I d = 0; d < rank; ++d) {
    n.grid.push_back(random_int(1, rank == 1 ? 90 : rank == 2 ? 12 : 6));
    n.kernel.push_back(random_int(1, random_int(1, 12)));
    n.dilation.push_back(random_int(1, random_int(1, 5)));
    n.tile.push_back(random_int(1, random_int(1, 5)));
    n.shift.push_back(random_int(-5, 5));
    size *= n.grid.back();
  }
  // Every pair once, by definition.
  std::vector<std::vector<std::vector<bool>>> axis;
  for (std::size_t d = 0; d < n.grid.size(); ++d) {
    auto& table = axis.emplace_back();
    for (I q = 0; q < n.grid[d]; ++q) {
      auto& row = table.emplace_back();
      for (I k = 0; k < n.grid[d]; ++k) row.push_back(axis_sees(n, d, q, k));
    }
  }
  const auto expected = [&](I, I, I q, I k) {
    if (q < 0 || q >= size || k < 0 || k >= size) return false;
    for (std::size_t d = n.grid.size(); d-- > 0; q /= n.grid[d], k /= n.grid[d])
      if (!axis[d][static_cast<std::size_t>(q % n.grid[d])]
               [static_cast<std::size_t>(k % n.grid[d])])
        return false;
    return true;
  };
  check_mask(neighbourhood(n), expected, -10, std::max<I>(size + 10, 40));
}

Mask line(I extent, I kernel, I dilation = 1, I tile = 1, I shift = 0) {
  return neighbourhood({{extent}, {kernel}, {dilation}, {tile}, {shift}});
}

using Keys = std::vector<I>;

TEST(Neighbourhood, KeepsTheNumberOfNeighboursAtTheBorder) {
  EXPECT_EQ(line(10, 3).visible_keys(0, 0, 0, 10), (Keys{0, 1, 2}));
  EXPECT_EQ(line(10, 3).visible_keys(0, 0, 5, 10), (Keys{4, 5, 6}));
  EXPECT_EQ(line(10, 3).visible_keys(0, 0, 9, 10), (Keys{7, 8, 9}));
  EXPECT_EQ(line(10, 3, 2).visible_keys(0, 0, 1, 10), (Keys{1, 3, 5}));
  EXPECT_EQ(line(4, 9).visible_keys(0, 0, 2, 10), (Keys{0, 1, 2, 3}));
}

TEST(Neighbourhood, ShiftMovesWindowsWithoutJoiningTheEnds) {
  const Mask windows = line(8, 1, 1, 4, 2);
  EXPECT_EQ(windows.visible_keys(0, 0, 0, 8), (Keys{0, 1}));
  EXPECT_EQ(windows.visible_keys(0, 0, 3, 8), (Keys{2, 3, 4, 5}));
  EXPECT_EQ(windows.visible_keys(0, 0, 7, 8), (Keys{6, 7}));
}

// Case 42: a 5x6x7 grid in tiles of 4x4x4 has blocks of 64, 48, 32, 24, 16, 12, 8 and 6 tokens.
TEST(Neighbourhood, CutsRaggedTilesOfAVideoGrid) {
  Neighbourhood n;
  n.grid = {5, 6, 7};
  n.kernel = {1, 1, 1};
  n.tile = {4, 4, 4};
  const Mask mask = neighbourhood(n);
  std::multiset<I> sizes;
  for (const I x : {0, 4})
    for (const I y : {0, 4})
      for (const I z : {0, 4})
        sizes.insert(
            static_cast<I>(mask.visible_keys(0, 0, (x * 6 + y) * 7 + z, 5 * 6 * 7).size()));
  EXPECT_EQ(sizes, (std::multiset<I>{64, 48, 32, 24, 16, 12, 8, 6}));
}

TEST(Neighbourhood, AnswersAtOnceOnAHugeGrid) {
  Neighbourhood n;
  n.grid = {1 << 10, 1 << 10, 1 << 10};
  n.kernel = {3, 3, 3};
  n.dilation = {1, 5, 1};
  const Mask mask = neighbourhood(n);
  constexpr I kSize = I{1} << 30;
  EXPECT_EQ(mask.classify(0, 0, {0, kSize, 0, kSize}), TileClass::kPartial);
  EXPECT_EQ(mask.classify(0, 0, {0, kSize / 4, kSize / 2, kSize}), TileClass::kEmpty);
  EXPECT_EQ(mask.visible_keys(0, 0, kSize / 2, kSize).size(), 27U);
}

}  // namespace
}  // namespace stof::mask::testing
