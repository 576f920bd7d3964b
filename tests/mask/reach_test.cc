// How far back masks see, against every pair.

#include "mask/reach.h"

#include <gtest/gtest.h>

#include <random>

namespace stof::mask {
namespace {

/// Causal, windows, first keys and what operators make of them.
Mask random_near(std::mt19937& random, int depth) {
  const auto draw = [&](int below) { return static_cast<std::int64_t>(random() % below); };
  if (depth > 0) {
    const Mask a = random_near(random, depth - 1);
    switch (draw(6)) {
      case 0:
        return a | random_near(random, depth - 1);
      case 1:
        return per_head({a, random_near(random, depth - 1)});
      case 2:
        return ~a & window(draw(12), 3);
      default:
        return a & random_near(random, depth - 1);
    }
  }
  switch (draw(6)) {
    case 0:
      return causal(draw(5) - 2);
    case 1:
      return window(draw(14), draw(4) - 1);
    case 2:
      return sink(draw(6));
    case 3:
      return dilated(draw(12), 1 + draw(3));
    case 4:
      return causal() & (prefix(draw(5)) | window(draw(9), 0));
    default:
      return draw(4) == 0 ? all() : none();
  }
}

TEST(Reach, IsWhatACacheMustKeep) {
  std::mt19937 random(7);
  constexpr std::int64_t kLength = 64, kHeads = 2;
  int found = 0, with_sinks = 0;
  for (int i = 0; i < 400; ++i) {
    const Mask mask = random_near(random, static_cast<int>(random() % 4));
    const std::optional<Reach> reach = reach_of(mask);
    const Mask bound = mask.bind({1, kHeads, kLength, kLength});
    if (!reach) continue;
    ++found;
    with_sinks += reach->sinks > 0;
    const std::int64_t first = reach->sinks + static_cast<std::int64_t>(random() % 5);
    const std::int64_t last = first + 1 + static_cast<std::int64_t>(random() % 9);
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t q = 0; q < kLength; ++q)
        for (std::int64_t k = 0; k < kLength; ++k) {
          if (k >= reach->sinks && k < q - reach->window) {
            ASSERT_FALSE(bound.visible(0, h, q, k)) << mask.to_text() << " " << q << " " << k;
          }
          if (q < last + reach->window || (k >= first && k < last)) continue;
          const std::int64_t left_out = last - first;
          ASSERT_EQ(bound.visible(0, h, q, k),
                    bound.visible(0, h, q - left_out, k < first ? k : k - left_out))
              << mask.to_text() << " " << q << " " << k << " without " << first << " to " << last;
        }
  }
  EXPECT_GT(found, 150);
  EXPECT_GT(with_sinks, 40);
}

TEST(Reach, IsAsShortAsTheMaskAllows) {
  EXPECT_EQ(reach_of(streaming(4, 1024)), (Reach{1024, 4}));
  EXPECT_EQ(reach_of(causal() & window(9, 0)), (Reach{9, 0}));
  EXPECT_EQ(reach_of(causal() & window(9, 0) & window(20, 20)), (Reach{9, 0}));
  // A first key that a window hides after 20 must not come nearer.
  EXPECT_EQ(reach_of(causal() & window(20, 0) & (sink(2) | window(9, 0))), (Reach{20, 2}));
  EXPECT_EQ(reach_of(per_head({window(3, 0), streaming(2, 5)})), (Reach{5, 2}));
  for (const Mask& mask : {all(), causal(), chunked(64), strided(4, 8), global(1, 1), ~window(4, 4),
                           causal() | window(3, 3), shifted(window(3, 3), 1, 0),
                           per_head({window(3, 0), causal()}), key_lengths({9})})
    EXPECT_EQ(reach_of(mask), std::nullopt) << mask.to_text();
}

}  // namespace
}  // namespace stof::mask
