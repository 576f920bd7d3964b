// predicate(): recognised primitives, evaluation, classification, text and JSON.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>

#include "expr/random_expression.h"
#include "mask/brute_force.h"
#include "mask/interval.h"
#include "stof/block_mask.h"
#include "stof/error.h"
#include "stof/mask.h"

namespace stof::mask {
namespace {

using namespace testing;
using I = std::int64_t;
using ::testing::HasSubstr;

/// A table with its values.
struct Table {
  std::string name;
  std::vector<I> shape, values;
};

Mask make(std::string_view text, const std::vector<Table>& tables = {}) {
  std::vector<PredicateTable> views;
  for (const Table& table : tables)
    views.push_back({table.name, {table.values.data(), DType::kInt64, Dims(table.shape)}});
  return predicate(text, views);
}

struct Known {
  const char* text;
  const char* canonical;
  bool (*sees)(I q, I k);  ///< also at positions below 0
};

TEST(Predicate, BecomesThePrimitiveItIs) {
  static const Known kKnown[] = {
      {"True", "all", [](I, I) { return true; }},
      {"q < q", "none", [](I, I) { return false; }},
      {"q >= k", "causal", [](I q, I k) { return q >= k; }},
      {"k <= q + 3", "causal(3)", [](I q, I k) { return k <= q + 3; }},
      {"q - k > 2", "causal(-3)", [](I q, I k) { return q - k > 2; }},
      {"2 * k < 2 * q - 3", "causal(-2)", [](I q, I k) { return 2 * k < 2 * q - 3; }},
      {"k < q", "causal(-1)", [](I q, I k) { return k < q; }},
      {"q - k <= 4", "window(4, -1)", [](I q, I k) { return q - k <= 4; }},
      {"k - q >= 2", "~causal(1)", [](I q, I k) { return k - q >= 2; }},
      {"(q - k <= 4) & (k <= q)", "causal & window(4, -1)",
       [](I q, I k) { return q - k <= 4 && k <= q; }},
      {"abs(q - k) <= 4", "window(4, 4)", [](I q, I k) { return std::abs(q - k) <= 4; }},
      {"abs(k - q) < 4", "window(3, 3)", [](I q, I k) { return std::abs(q - k) < 4; }},
      {"abs(k - q - 2) <= 3", "window(1, 5)", [](I q, I k) { return std::abs(k - q - 2) <= 3; }},
      {"abs(k - q - 9) <= 3", "causal(12) & ~causal(5)",
       [](I q, I k) { return std::abs(k - q - 9) <= 3; }},
      {"abs(q - k) > 4", "~window(4, 4)", [](I q, I k) { return std::abs(q - k) > 4; }},
      {"q == k", "window(0, 0)", [](I q, I k) { return q == k; }},
      {"q != k", "~window(0, 0)", [](I q, I k) { return q != k; }},
      {"k == q - 2", "causal(-2) & ~causal(-3)", [](I q, I k) { return k == q - 2; }},
      {"2 * q == 2 * k + 1", "none", [](I, I) { return false; }},
      {"q // 4 == k // 4", "chunked(4)",
       [](I q, I k) { return q >= 0 && k >= 0 && q / 4 == k / 4; }},
      {"k // 4 <= q // 4", "block_causal(4)",
       [](I q, I k) { return q >= 0 && k >= 0 && k / 4 <= q / 4; }},
      {"q // 4 - k // 4 <= 2", "block_window(4, 2, -1)",
       [](I q, I k) { return q >= 0 && k >= 0 && q / 4 - k / 4 <= 2; }},
      {"k // 4 - 1 <= q // 4", "block_window(4, -1, 1)",
       [](I q, I k) { return q >= 0 && k >= 0 && k / 4 - 1 <= q / 4; }},
      {"abs(q // 4 - k // 4) < 2", "block_window(4, 1, 1)",
       [](I q, I k) { return q >= 0 && k >= 0 && std::abs(q / 4 - k / 4) < 2; }},
      {"k < 5", "prefix(5)", [](I q, I k) { return q >= 0 && k >= 0 && k < 5; }},
      {"k < -5", "none", [](I, I) { return false; }},
      {"q <= 5", "global(6)", [](I q, I k) { return q >= 0 && k >= 0 && q <= 5; }},
      {"(q < 2) | (k < 3)", "global(2) | prefix(3)",
       [](I q, I k) { return q >= 0 && k >= 0 && (q < 2 || k < 3); }},
      {"k == 5", "global_tokens([5], false)", [](I q, I k) { return q >= 0 && k == 5; }},
      {"7 == q", "global_tokens([7], cols=false)", [](I q, I k) { return q == 7 && k >= 0; }},
      {"(q - k) % 3 == 0", "strided(0, 3)", [](I q, I k) { return (q - k) % 3 == 0; }},
      {"(k - q) % 3 == 1", "shifted(strided(0, 3), dk=2)",
       [](I q, I k) { return floor_mod(k - q, 3) == 1; }},
      {"(q - k + 1) % 3 == 0", "shifted(strided(0, 3), dk=2)",
       [](I q, I k) { return floor_mod(q - k + 1, 3) == 0; }},
      {"(q - k) % 3 == 5", "none", [](I, I) { return false; }},
      {"(abs(q - k) <= 6) & ((q - k) % 3 == 0)", "dilated(6, 3)",
       [](I q, I k) { return std::abs(q - k) <= 6 && (q - k) % 3 == 0; }},
      {"((q - k) % 3 == 0) | (abs(q - k) <= 1)", "strided(1, 3)",
       [](I q, I k) { return std::abs(q - k) <= 1 || (q - k) % 3 == 0; }},
      {"k % 8 >= 6", "summary(8, 2)", [](I q, I k) { return q >= 0 && k >= 0 && k % 8 >= 6; }},
      {"~(k < 5)", "~prefix(5)", [](I q, I k) { return !(q >= 0 && k >= 0 && k < 5); }},
      // No primitive: what depends on q and k otherwise than by q - k sees nothing below 0.
      {"k >= 5", "predicate(\"5 <= k\")", [](I q, I k) { return q >= 0 && k >= 5; }},
      {"q + k < 9", "predicate(\"q + k < 9\")",
       [](I q, I k) { return q >= 0 && k >= 0 && q + k < 9; }},
      {"(q - k) * (q - k) < 9", "predicate(\"(q - k) * (q - k) < 9\")",
       [](I q, I k) { return (q - k) * (q - k) < 9; }},
      {"where(q - k < 3, q <= k, k + 8 < q)", "predicate(\"where(q - k < 3, q <= k, k + 8 < q)\")",
       [](I q, I k) { return q - k < 3 ? q <= k : k + 8 < q; }},
      {"(q ^ k) & 1 == 0", "predicate(\"(q ^ k) & 1 == 0\")",
       [](I q, I k) { return q >= 0 && k >= 0 && ((q ^ k) & 1) == 0; }},
      {"q * 3 % 7 == k * 3 % 7", "predicate(\"q * 3 % 7 == k * 3 % 7\")",
       [](I q, I k) { return q >= 0 && k >= 0 && q * 3 % 7 == k * 3 % 7; }},
  };
  for (const Known& known : kKnown) {
    const Mask mask = make(known.text);
    EXPECT_EQ(mask.to_text(), known.canonical) << known.text;
    for (I q = -9; q < 24; ++q)
      for (I k = -9; k < 24; ++k)
        ASSERT_EQ(mask.visible(0, 0, q, k), known.sees(q, k))
            << known.text << " at " << q << ", " << k;
    for (const I q : {I{-3}, I{5}, I{1} << 30})
      for (const I k : {I{-40}, I{0}, q - 7}) {
        const std::uint64_t bits = mask.row_bits(0, 0, q, k);
        for (I i = 0; i < 64; ++i)
          ASSERT_EQ((bits >> i & 1) != 0, known.sees(q, k + i))
              << known.text << " at " << q << ", " << k + i;
      }
    EXPECT_EQ(parse(mask.to_text()).fingerprint(), mask.fingerprint());
    EXPECT_EQ(from_json(mask.to_json()).fingerprint(), mask.fingerprint());
  }
}

TEST(Predicate, AgreesWithItselfWrittenAsAMask) {
  EXPECT_EQ(make("(q - k <= 256) & (q >= k) | (k < 64)").fingerprint(),
            parse("causal & window(256, -1) | prefix(64)").fingerprint());
}

/// Random predicates with random tables.
struct DrawnPredicate {
  std::vector<expr::testing::SampleTable> samples = expr::testing::random_tables();
  expr::testing::Sample<bool> sample =
      expr::testing::RandomExpression(samples).boolean(static_cast<int>(random_int(0, 3)));

  Mask mask() const {
    std::vector<Table> tables;
    for (const auto& table : samples) tables.push_back({table.name, table.shape, table.values});
    return make(sample.text, tables);
  }
};

RC_GTEST_PROP(PredicateProperty, SeesWhatAPlainFunctionSees, ()) {
  const DrawnPredicate drawn;
  RC_LOG() << drawn.sample.text << "\n";
  const Mask mask = drawn.mask();
  RC_LOG() << mask.to_text() << "\n";
  const I b = random_int(0, 2), h = random_int(0, 2);
  check_mask(
      mask,
      [&](I, I, I q, I k) {
        return drawn.sample.at({b, h, q, k});
      },
      0, random_int(2, 150), Precision::kSound, b, h);
}

RC_GTEST_PROP(PredicateProperty, KeepsItsMeaningWhenBoundWrittenAndRead, ()) {
  const DrawnPredicate drawn;
  const Mask mask = drawn.mask();
  RC_LOG() << drawn.sample.text << "\n" << mask.to_text() << "\n";
  RC_ASSERT(parse(mask.to_text(), "").fingerprint() == mask.fingerprint());
  RC_ASSERT(parse(mask.to_text(), "").to_text() == mask.to_text());
  RC_ASSERT(from_json(mask.to_json()).fingerprint() == mask.fingerprint());
  const ScoreShape shape{2, 3, random_int(1, 90), random_int(1, 90)};
  const auto alignment = random_int(0, 1) != 0 ? Alignment::kBottomRight : Alignment::kTopLeft;
  const I offset = alignment == Alignment::kBottomRight ? shape.seq_kv - shape.seq_q : 0;
  const Mask bound = mask.bind(shape, alignment);
  RC_LOG() << bound.to_text() << "\n";
  RC_ASSERT(from_json(bound.to_json()).fingerprint() == bound.fingerprint());
  const BlockMask blocks = build_block_mask(mask, shape, alignment);
  for (int round = 0; round < 60; ++round) {
    const I b = random_int(0, 1), h = random_int(0, 2);
    const I q = random_int(0, shape.seq_q - 1), k = random_int(0, shape.seq_kv - 1);
    if (q + offset < 0) continue;  // tested with the primitives
    const bool expected = drawn.sample.at({b, h, q + offset, k});
    RC_ASSERT(bound.visible(b, h, q, k) == expected);
    RC_ASSERT(blocks.visible(b, h, q, k) == expected);
  }
}

TEST(Predicate, HasAPatternPerHeadAndBatchEntryWhereItReadsThem) {
  const Mask heads = make("q - k <= 4 << h"), batch = make("k < 3 * (b + 1)");
  const Mask both = make("(q - k <= 4 << h) & (k >= 2 * b)");
  EXPECT_EQ(heads.head_extent(), 0);
  EXPECT_EQ(heads.batch_extent(), 1);
  EXPECT_EQ(batch.head_extent(), 1);
  EXPECT_EQ(batch.batch_extent(), 0);
  const ScoreShape shape{2, 3, 40, 40};
  EXPECT_EQ(heads.bind(shape).head_extent(), 3);
  EXPECT_EQ(heads.bind(shape).batch_extent(), 1);
  EXPECT_EQ(both.bind(shape).head_extent(), 3);
  EXPECT_EQ(both.bind(shape).batch_extent(), 2);
  const BlockMask blocks = build_block_mask(both, shape);
  for (I b = 0; b < 2; ++b)
    for (I h = 0; h < 3; ++h)
      for (I q = 0; q < 40; ++q)
        for (I k = 0; k < 40; ++k)
          ASSERT_EQ(blocks.visible(b, h, q, k), q - k <= 4 << h && k >= 2 * b);
  EXPECT_EQ(batch_entry(batch, 5).visible(0, 0, 0, 17), true);
  EXPECT_EQ(batch_entry(batch, 5).visible(0, 0, 0, 18), false);
}

TEST(Predicate, IsThePrimitiveOfItsTablesOnceTheLengthsAreKnown) {
  const Table doc{"doc", {8}, {4, 4, 0, 0, 0, 2, 2, 9}};
  const Mask documents = make("doc[q] == doc[k]", {doc});
  EXPECT_EQ(documents.bind({1, 1, 8, 8}).to_text(), "bound(document([2, 3, 2, 1]), 1, 1, 8, 8)");
  EXPECT_EQ(documents.bind({1, 1, 6, 6}).to_text(), "bound(document([2, 3, 1]), 1, 1, 6, 6)");
  EXPECT_EQ(documents.bind({1, 1, 2, 8}, Alignment::kBottomRight).to_text(),
            "bound(shifted(document([2, 3, 2, 1]), 6), 1, 1, 2, 8, true)");
  // Too short, or a value that comes back: it stays what it is.
  EXPECT_THAT(documents.bind({1, 1, 9, 9}).to_text(), HasSubstr("predicate"));
  EXPECT_THAT(make("d[q] == d[k]", {{"d", {4}, {0, 0, 1, 0}}}).bind({1, 1, 4, 4}).to_text(),
              HasSubstr("predicate"));
  const Mask rows = make("doc[b, k] == doc[b, q]", {{"doc", {2, 4}, {0, 0, 0, 1, 5, 6, 6, 6}}});
  EXPECT_EQ(rows.bind({2, 1, 4, 4}).to_text(),
            "bound(per_batch([document([3, 1]), document([1, 3])]), 2, 1, 4, 4)");
  const Mask padded = make("k < n[b]", {{"n", {3}, {2, 90, -1}}});
  EXPECT_EQ(padded.bind({3, 1, 8, 8}).to_text(), "bound(key_lengths([2, 8, 0]), 3, 1, 8, 8)");
  EXPECT_EQ(padded.bind({2, 1, 8, 8}).to_text(), "bound(key_lengths([2, 8]), 2, 1, 8, 8)");
  EXPECT_EQ(padded.bind({4, 1, 8, 8}).to_text(), "bound(key_lengths([2, 8, 0, 0]), 4, 1, 8, 8)");
}

// NATTEN's neighbourhoods as its examples write them, along each dimension of a grid of tokens.
TEST(Predicate, IsANeighbourhoodAlongOneDimensionOnceTheLengthsLieOnTheGrid) {
  const auto part = [](const std::string& x, const std::string& y, I radius, I extent) {
    return fmt::format("abs(min(max({}, {}), {}) - {}) <= {}", x, radius, extent - 1 - radius, y,
                       radius);
  };
  struct Case {
    std::string text;
    ScoreShape shape;
    std::string grid, kernel;  ///< empty: it stays what it is
  };
  const std::vector<Case> cases = {
      {part("q // 11", "k // 11", 2, 9), {1, 1, 99, 99}, "[9, 11]", "[5, 11]"},
      {part("q // 11", "k // 11", 2, 9), {1, 1, 99, 40}, "[9, 11]", "[5, 11]"},
      {part("q // 11", "k // 11", 2, 9), {1, 1, 100, 99}, "", ""},  // past the last row
      {part("q % 11", "k % 11", 3, 11), {1, 1, 50, 99}, "[9, 11]", "[9, 7]"},
      {part("q % 11", "k % 11", 3, 11), {1, 1, 8, 7}, "[11]", "[7]"},
      {part("q % 11", "k % 11", 3, 10), {1, 1, 50, 99}, "", ""},  // clamped before its end
      {part("q % 11", "k % 7", 1, 11), {1, 1, 50, 50}, "", ""},
      {part("q", "k", 3, 60), {1, 1, 60, 60}, "[60]", "[7]"},
      {part("k", "q", 3, 60), {1, 1, 60, 60}, "", ""},  // the keys are clamped
      {part("q // 4 % 5", "k // 4 % 5", 1, 5), {1, 1, 70, 80}, "[4, 5, 4]", "[4, 3, 4]"},
      {part("q % 20 // 4", "k % 20 // 4", 1, 5), {1, 1, 70, 80}, "[4, 5, 4]", "[4, 3, 4]"},
      {"abs(k // 8 - max(min(q // 8, 6), 1)) < 2", {1, 1, 64, 64}, "[8, 8]", "[3, 8]"},
      {"abs(k // 8 - max(min(q // 8, 6), 2)) < 2", {1, 1, 64, 64}, "", ""},
      {"abs(min(max(q, 3), 2) - k) <= 3", {1, 1, 6, 6}, "", ""},
  };
  for (const Case& c : cases) {
    const Mask mask = make(c.text);
    const Mask bound = mask.bind(c.shape);
    if (c.grid.empty())
      EXPECT_THAT(bound.to_text(), HasSubstr("predicate")) << c.text;
    else
      EXPECT_THAT(bound.to_text(), HasSubstr("neighbourhood(" + c.grid + ", " + c.kernel + ")"))
          << c.text;
    for (I q = 0; q < c.shape.seq_q; ++q)
      ASSERT_EQ(bound.visible_keys(0, 0, q, c.shape.seq_kv),
                mask.visible_keys(0, 0, q, c.shape.seq_kv))
          << c.text << " at query " << q;
  }
}

TEST(Predicate, ReadsZeroOutsideATable) {
  const Mask mask = make("doc[q] == doc[k]", {{"doc", {5}, {0, 0, 1, 1, 2}}});
  const BlockMask blocks = build_block_mask(mask, {1, 1, 130, 130});
  const auto doc = [](I i) {
    return i < 5 ? std::vector<I>{0, 0, 1, 1, 2}[static_cast<std::size_t>(i)] : 0;
  };
  for (I q = 0; q < 130; ++q)
    for (I k = 0; k < 130; ++k) ASSERT_EQ(blocks.visible(0, 0, q, k), doc(q) == doc(k));
}

TEST(Predicate, TakesTablesOfAnyStridesAndOfBooleans) {
  const bool keep[] = {true, false, true, true};
  const std::int32_t wide[] = {1, -1, 2, -1, 3, -1, 1, -1};
  const Mask mask =
      predicate("keep[k] & (step[q] <= 2)", {{"keep", {keep, DType::kBool, {4}}},
                                             {"step", {wide, DType::kInt32, {4}, {2}}},
                                             {"unread", {wide, DType::kInt32, {8}}}});
  for (I q = 0; q < 4; ++q)
    for (I k = 0; k < 4; ++k) EXPECT_EQ(mask.visible(0, 0, q, k), keep[k] && wide[2 * q] <= 2);
  EXPECT_EQ(mask.to_text(),
            "predicate(\"keep[k] != 0\", [\"keep\"], [[4]], [[1, 0, 1, 1]]) & "
            "predicate(\"step[q] <= 2\", [\"step\"], [[4]], [[1, 2, 3, 1]])");
  EXPECT_EQ(parse(mask.to_text()).fingerprint(), mask.fingerprint());
}

TEST(Predicate, IsRefusedWithTheTextAndACaret) {
  const auto error_of = [](auto&& make_mask) -> std::string {
    try {
      make_mask();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(
      error_of([] { make("q - kk <= 4"); }),
      "predicate, column 5: unknown name \"kk\"; did you mean \"k\"?\n  q - kk <= 4\n      ^");
  EXPECT_THAT(error_of([] { parse("causal & predicate(\"q < doc[q]\")"); }),
              HasSubstr("mask, column 10: predicate, column 5: unknown name \"doc\""));
  EXPECT_THAT(error_of([] { parse("predicate(\"q < a\", [\"a\"], [[2]], [[1]])"); }),
              HasSubstr("table a: expected 2 values for its shape [2], got 1"));
  EXPECT_THAT(error_of([] { parse("predicate(\"q < a\", [\"a\"], [[2]])"); }),
              HasSubstr("expected as many shapes and values as names, got 1, 0 and 1"));
  EXPECT_THAT(error_of([] { from_json(R"({"op":"predicate","text":"q < k","names":[3]})"); }),
              HasSubstr("$.names[0]: expected a text in double quotes, got 3"));
  EXPECT_THAT(error_of([] { parse("predicate(\"q < a[q]\", [\"a\"], [[-1]], [[]])"); }),
              HasSubstr("-1"));
  std::string deep = "q < k";
  for (int i = 0; i < 105; ++i)
    deep = "(" + deep + ") " + (i % 2 == 0 ? "&" : "|") + " (q + k < 3)";
  EXPECT_THAT(error_of([&] { make(deep); }), HasSubstr("nested deeper than 100 levels"));
}

// CASES 9: q * seq_kv + k passes 2^31.
TEST(Predicate, CountsInSixtyFourBits) {
  const Mask mask = make("(q * 50000 + k) % 2 == 1");
  EXPECT_EQ(mask.visible(0, 0, 49999, 49999), true);
  EXPECT_EQ(mask.visible(0, 0, 49999, 49998), false);
  EXPECT_EQ(mask.row_bits(0, 0, 49999, 49920), 0xaaaaaaaaaaaaaaaaULL);
  const BlockMask blocks =
      build_block_mask(make("q * 50000 + k >= 2499900000"), {1, 1, 50000, 50000});
  EXPECT_EQ(blocks.visible(0, 0, 49997, 49999), false);
  EXPECT_EQ(blocks.visible(0, 0, 49998, 0), true);
  EXPECT_EQ(blocks.visible(0, 0, 49999, 12), true);
}

// CASES 7: a table of the sequence's length, in tiles that reach past it.
TEST(Predicate, NeverReadsATablePastItsEnd) {
  constexpr I kLength = 2046;
  std::vector<I> doc;
  for (I length = 1; static_cast<I>(doc.size()) < kLength; ++length)
    for (I i = 0; i < length * length && static_cast<I>(doc.size()) < kLength; ++i)
      doc.push_back(length % 7);  // values come back, so that it stays a predicate
  const Mask mask = make("(doc[q] == doc[k]) & (q >= k)", {{"doc", {kLength}, doc}});
  const BlockMask blocks = build_block_mask(mask, {1, 1, kLength, kLength});
  for (const I q : {I{0}, I{5}, I{1000}, kLength - 1})
    for (I k = 0; k < kLength; ++k)
      ASSERT_EQ(blocks.visible(0, 0, q, k),
                doc[static_cast<std::size_t>(q)] == doc[static_cast<std::size_t>(k)] && q >= k);
}

// CASES 22: true and false everywhere, also where only a closer look shows it.
TEST(Predicate, MayBeTrueOrFalseEverywhere) {
  const ScoreShape shape{1, 1, 100, 100};
  for (const auto& [text, density] : {std::pair{"True", 1.0},
                                      {"False", 0.0},
                                      {"(q ^ k) >= 0", 1.0},
                                      {"q * q + k * k < 0", 0.0},
                                      {"q % 2 * 2 % 2 == 0", 1.0}}) {
    const auto stats = compute_stats(build_block_mask(make(text), shape));
    EXPECT_EQ(stats.element_density, density) << text;
  }
}

}  // namespace
}  // namespace stof::mask
