// Laws of the operators, and what classify() promises for whole expressions.

#include <vector>

#include "mask/random_mask.h"
#include "stof/error.h"

namespace stof::mask::testing {
namespace {

using I = std::int64_t;

/// A bound random expression, and a (batch, head) to look at.
struct Drawn {
  ScoreShape shape = random_shape();
  Alignment alignment = random_int(0, 1) != 0 ? Alignment::kBottomRight : Alignment::kTopLeft;
  I b = random_int(0, shape.batch - 1), h = random_int(0, shape.num_heads - 1);

  Mask mask(int depth = 2) const { return random_mask(shape, depth).bind(shape, alignment); }
};

void check_equal(const Drawn& drawn, const Mask& a, const Mask& b) {
  for (I q = 0; q < drawn.shape.seq_q; q += random_int(1, 7))
    RC_ASSERT(a.visible_keys(drawn.b, drawn.h, q, drawn.shape.seq_kv) ==
              b.visible_keys(drawn.b, drawn.h, q, drawn.shape.seq_kv));
}

RC_GTEST_PROP(Expression, ClassifiesSoundly, ()) {
  const Drawn drawn;
  const Mask mask = drawn.mask(3);
  check_mask(mask, predicate_of(mask), 0, 200, Precision::kSound, drawn.b, drawn.h);
}

RC_GTEST_PROP(Expression, AnswersAtNegativePositionsToo, ()) {
  const Drawn drawn;
  const Mask mask = drawn.mask(3);
  check_mask(mask, predicate_of(mask), -60, 60, Precision::kSound, drawn.b, drawn.h);
}

RC_GTEST_PROP(Expression, ObeysTheOperatorsPairByPair, ()) {
  const Drawn drawn;
  const Mask a = drawn.mask(), b = drawn.mask(), c = drawn.mask();
  const I dq = random_int(-30, 30), dk = random_int(-30, 30);
  for (int i = 0; i < 200; ++i) {
    const I q = random_int(-40, 200), k = random_int(-40, 200);
    const auto at = [&](const Mask& m) { return m.visible(drawn.b, drawn.h, q, k); };
    RC_ASSERT(at(a & b & c) == (at(a) && at(b) && at(c)));
    RC_ASSERT(at(a | b | c) == (at(a) || at(b) || at(c)));
    RC_ASSERT(at(~a) == !at(a));
    RC_ASSERT(at(shifted(a, dq, dk)) == a.visible(drawn.b, drawn.h, q + dq, k + dk));
  }
}

RC_GTEST_PROP(Expression, ObeysDeMorgan, ()) {
  const Drawn drawn;
  const Mask a = drawn.mask(), b = drawn.mask();
  check_equal(drawn, ~(a & b), ~a | ~b);
  check_equal(drawn, ~(a | b), ~a & ~b);
}

RC_GTEST_PROP(Expression, ObeysTheLawsOfABooleanAlgebra, ()) {
  const Drawn drawn;
  const Mask a = drawn.mask(), b = drawn.mask(), c = drawn.mask();
  check_equal(drawn, ~~a, a);
  check_equal(drawn, a & a, a);
  check_equal(drawn, a | a, a);
  check_equal(drawn, a & b, b & a);
  check_equal(drawn, a | (b | c), (a | b) | c);
  check_equal(drawn, a & (b | c), (a & b) | (a & c));
  check_equal(drawn, a | (a & b), a);
  check_equal(drawn, a & all(), a);
  check_equal(drawn, a | none(), a);
  check_equal(drawn, a & ~a, none());
  check_equal(drawn, a | ~a, all());
}

RC_GTEST_PROP(Expression, ShiftsAddUp, ()) {
  const Drawn drawn;
  const Mask a = drawn.mask();
  const I x = random_int(-30, 30), y = random_int(-30, 30), z = random_int(-30, 30);
  check_equal(drawn, shifted(shifted(a, x, y), z, x), shifted(a, x + z, y + x));
}

RC_GTEST_PROP(Expression, ExtentsCoverAllThatDiffers, ()) {
  const Drawn drawn;
  const Mask mask = drawn.mask(3);
  const I batch = mask.batch_extent(), heads = mask.head_extent();
  RC_ASSERT(batch == 1 || batch == drawn.shape.batch);
  RC_ASSERT(heads == 1 || heads == drawn.shape.num_heads);
  const I b = batch == 1 ? 0 : drawn.b, h = heads == 1 ? 0 : drawn.h;
  for (I q = 0; q < drawn.shape.seq_q; ++q)
    RC_ASSERT(mask.visible_keys(drawn.b, drawn.h, q, drawn.shape.seq_kv) ==
              mask.visible_keys(b, h, q, drawn.shape.seq_kv));
}

RC_GTEST_PROP(Expression, VisibleKeysAreThoseVisible, ()) {
  const Drawn drawn;
  const Mask mask = drawn.mask(3);
  const I q = random_int(0, drawn.shape.seq_q - 1);
  std::vector<I> expected;
  for (I k = 0; k < drawn.shape.seq_kv; ++k)
    if (mask.visible(drawn.b, drawn.h, q, k)) expected.push_back(k);
  RC_ASSERT(mask.visible_keys(drawn.b, drawn.h, q, drawn.shape.seq_kv) == expected);
}

RC_GTEST_PROP(Expression, BindingTwiceChangesNothing, ()) {
  const Drawn drawn;
  const Mask mask = drawn.mask(3);
  RC_ASSERT(mask.bound());
  const bool same = &mask.bind(drawn.shape, drawn.alignment).node() == &mask.node();
  RC_ASSERT(same);
}

RC_GTEST_PROP(PerHead, UsesEachHeadsMask, ()) {
  const Drawn drawn;
  std::vector<Mask> heads, batches;
  for (I h = 0; h < drawn.shape.num_heads; ++h) heads.push_back(drawn.mask());
  for (I b = 0; b < drawn.shape.batch; ++b) batches.push_back(drawn.mask());
  check_equal(drawn, per_head(heads), heads[static_cast<std::size_t>(drawn.h)]);
  check_equal(drawn, per_batch(batches), batches[static_cast<std::size_t>(drawn.b)]);
}

RC_GTEST_PROP(BatchEntry, ShowsEveryBatchEntryWhatOneSees, ()) {
  const Drawn drawn;
  const Mask mask = random_mask(drawn.shape, 2);
  const I entry = random_int(0, std::max<I>(mask.batch_extent(), 1) - 1);
  const Mask one = batch_entry(mask, entry);
  RC_ASSERT(one.batch_extent() == 1);
  const Mask bound = mask.bind(drawn.shape, drawn.alignment);
  const Mask bound_one = one.bind(drawn.shape, drawn.alignment);
  for (I q = 0; q < drawn.shape.seq_q; ++q)
    RC_ASSERT(bound_one.visible_keys(drawn.b, drawn.h, q, drawn.shape.seq_kv) ==
              bound.visible_keys(entry, drawn.h, q, drawn.shape.seq_kv));
}

TEST(BatchEntry, RefusesAnEntryThatIsNotThere) {
  EXPECT_NO_THROW(batch_entry(key_lengths({3, 4}), 1));
  EXPECT_THROW(batch_entry(key_lengths({3, 4}), 2), Error);
  EXPECT_THROW(batch_entry(causal(), -1), Error);
}

TEST(Expression, LongChainsAreFlat) {
  Mask chain = none();
  for (I i = 0; i < 2000; ++i) chain = chain | (i % 2 == 0 ? causal(-i) : window(i, 0));
  EXPECT_TRUE(chain.visible(0, 0, 5, 5));
  EXPECT_FALSE(chain.visible(0, 0, 5, 6));
}

}  // namespace
}  // namespace stof::mask::testing
