// Primitives that are formulas of q and k, against those formulas.

#include <cmath>
#include <vector>

#include "mask/brute_force.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;

I block_of(I position, I block) {
  return static_cast<I>(std::floor(static_cast<double>(position) / static_cast<double>(block)));
}

RC_GTEST_PROP(Constant, IsEverywhereTheSame, ()) {
  check_mask(
      all(), [](I, I, I, I) { return true; }, -30, 60);
  check_mask(
      none(), [](I, I, I, I) { return false; }, -30, 60);
  check_mask(
      Mask(), [](I, I, I, I) { return true; }, -30, 60);
}

RC_GTEST_PROP(Causal, MatchesItsFormula, ()) {
  const I offset = random_int(-20, 20);
  check_mask(
      causal(offset), [=](I, I, I q, I k) { return k <= q + offset; }, -60, 90);
}

RC_GTEST_PROP(Window, MatchesItsFormula, ()) {
  const I left = random_int(-2, 20), right = random_int(-2, 20);
  check_mask(
      window(left, right),
      [=](I, I, I q, I k) { return (left < 0 || k >= q - left) && (right < 0 || k <= q + right); },
      -60, 90);
}

RC_GTEST_PROP(Chunked, MatchesItsFormula, ()) {
  const I n = random_int(1, 20);
  check_mask(
      chunked(n),
      [=](I, I, I q, I k) { return q >= 0 && k >= 0 && block_of(q, n) == block_of(k, n); }, -30,
      90);
}

RC_GTEST_PROP(BlockCausal, MatchesItsFormula, ()) {
  const I n = random_int(1, 20);
  check_mask(
      block_causal(n),
      [=](I, I, I q, I k) { return q >= 0 && k >= 0 && block_of(q, n) >= block_of(k, n); }, -30,
      90);
}

RC_GTEST_PROP(BlockWindow, MatchesItsFormula, ()) {
  const I n = random_int(1, 12), left = random_int(-2, 4), right = random_int(-2, 4);
  check_mask(
      block_window(n, left, right),
      [=](I, I, I q, I k) {
        const I d = block_of(k, n) - block_of(q, n);
        return q >= 0 && k >= 0 && (left < 0 || d >= -left) && (right < 0 || d <= right);
      },
      -30, 90);
}

RC_GTEST_PROP(Prefix, MatchesItsFormula, ()) {
  const I n = random_int(0, 40);
  const Predicate expected = [=](I, I, I q, I k) { return q >= 0 && k >= 0 && k < n; };
  check_mask(prefix(n), expected, -30, 90);
  check_mask(sink(n), expected, -30, 90);
}

RC_GTEST_PROP(Global, MatchesItsFormula, ()) {
  const I rows = random_int(0, 40), cols = random_int(0, 40);
  check_mask(
      global(rows, cols),
      [=](I, I, I q, I k) { return q >= 0 && k >= 0 && (q < rows || k < cols); }, -30, 90);
}

RC_GTEST_PROP(Dilated, MatchesItsFormula, ()) {
  const I reach = random_int(0, 40), rate = random_int(1, 12);
  check_mask(
      dilated(reach, rate),
      [=](I, I, I q, I k) { return std::abs(q - k) <= reach && (q - k) % rate == 0; }, -60, 90);
}

RC_GTEST_PROP(Strided, MatchesItsFormula, ()) {
  const I local = random_int(0, 20), stride = random_int(1, 20);
  check_mask(
      strided(local, stride),
      [=](I, I, I q, I k) { return std::abs(q - k) <= local || (q - k) % stride == 0; }, -60, 90);
}

TEST(Strided, IsFullOnlyUpToTheNextMultiple) {
  EXPECT_EQ(strided(3, 4).classify(0, 0, {0, 1, 0, 5}), TileClass::kFull);
  EXPECT_EQ(strided(3, 5).classify(0, 0, {0, 1, 0, 5}), TileClass::kPartial);
  EXPECT_EQ(strided(3, 4).classify(0, 0, {0, 1, 0, 6}), TileClass::kPartial);
}

RC_GTEST_PROP(Summary, MatchesItsFormula, ()) {
  const I stride = random_int(1, 90), count = random_int(0, stride);
  check_mask(
      summary(stride, count),
      [=](I, I, I q, I k) { return q >= 0 && k >= 0 && k % stride >= stride - count; }, -30, 150);
}

RC_GTEST_PROP(Document, MatchesPositionByPositionLabels, ()) {
  std::vector<I> lengths, label;
  const I count = random_int(0, 6);
  for (I d = 0; d < count; ++d) {
    lengths.push_back(random_int(0, 25));
    label.insert(label.end(), static_cast<std::size_t>(lengths.back()), d);
  }
  const auto label_of = [&](I position) {
    return position < 0 || position >= static_cast<I>(label.size())
               ? I{-1}
               : label[static_cast<std::size_t>(position)];
  };
  check_mask(
      document(lengths),
      [&](I, I, I q, I k) { return label_of(q) >= 0 && label_of(q) == label_of(k); }, -20, 120);
}

}  // namespace
}  // namespace stof::mask::testing
