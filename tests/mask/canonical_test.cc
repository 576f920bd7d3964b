#include "mask/canonical.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "mask/nesting.h"
#include "random_text.h"
#include "stof/error.h"
#include "stof/mask.h"

namespace stof::mask {
namespace {

Fingerprint fingerprint_of_text(const std::string& text) { return parse(text).fingerprint(); }

/// Every pair of both, over two heads and batch entries, negative positions included.
void expect_same_meaning(const Mask& a, const Mask& b) {
  for (std::int64_t batch = 0; batch < std::max(a.batch_extent(), b.batch_extent()); ++batch) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t q = -4; q < 24; ++q) {
        for (std::int64_t k = -4; k < 24; ++k) {
          if (a.visible(batch, head, q, k) != b.visible(batch, head, q, k)) {
            RC_FAIL("batch " + std::to_string(batch) + ", head " + std::to_string(head) +
                    ", query " + std::to_string(q) + ", key " + std::to_string(k));
          }
        }
      }
    }
  }
}

RC_GTEST_PROP(Canonical, NeverChangesWhatIsVisible, ()) {
  const std::string text = testing::random_text(*rc::gen::inRange(0, 4));
  RC_LOG() << text << "\n";
  const Mask mask = parse(text);
  const std::string canonical = mask.to_text();
  RC_LOG() << canonical << "\n";
  if (!mask.bound()) return;  // asks for lengths; the round trip below covers it
  expect_same_meaning(mask, parse(canonical));
}

RC_GTEST_PROP(Canonical, TextAndJsonReadBackToTheSameForm, ()) {
  const Mask mask = parse(testing::random_text(*rc::gen::inRange(0, 5)));
  const std::string text = mask.to_text();
  const std::string json = mask.to_json();
  RC_ASSERT(parse(text).to_text() == text);
  RC_ASSERT(parse(text).fingerprint() == mask.fingerprint());
  RC_ASSERT(from_json(json).to_json() == json);
  RC_ASSERT(from_json(json).fingerprint() == mask.fingerprint());
}

RC_GTEST_PROP(Canonical, FingerprintsAreEqualExactlyWhenTextsAre, ()) {
  const Mask a = parse(testing::random_text(*rc::gen::inRange(0, 2)));
  const Mask b = parse(testing::random_text(*rc::gen::inRange(0, 2)));
  RC_ASSERT((a.to_text() == b.to_text()) == (a.fingerprint() == b.fingerprint()));
}

TEST(Canonical, GivesOneSpellingToWhatIsTheSame) {
  const std::array<std::pair<const char*, const char*>, 34> cases = {{
      {"prefix(3) & causal", "causal & prefix(3)"},
      {"(prefix(3) | chunked(4)) | causal", "causal | chunked(4) | prefix(3)"},
      {"causal & causal", "causal"},
      {"causal | causal & causal", "causal"},
      {"all & causal", "causal"},
      {"none | causal", "causal"},
      {"none & causal", "none"},
      {"all | causal", "all"},
      {"~~causal", "causal"},
      {"~~~causal", "~causal"},
      {"~all", "none"},
      {"~none", "all"},
      {"and([])", "all"},
      {"or([])", "none"},
      {"and([causal, sink(2)])", "causal & prefix(2)"},
      {"not(causal)", "~causal"},
      {"sink(4)", "prefix(4)"},
      {"global(cols=4)", "prefix(4)"},
      {"global(0, 0)", "none"},
      {"prefix(0)", "none"},
      {"window(-7, -2)", "all"},
      {"window(-7, 0)", "causal"},
      {"window(left=-1, right=3)", "causal(3)"},
      {"window(2, -9)", "window(2, -1)"},
      {"dilated(4, 1)", "window(4, 4)"},
      {"block_window(8, 0, 0)", "chunked(8)"},
      {"block_window(8, -3, 0)", "block_causal(8)"},
      {"global_tokens([5, 1, 5])", "global_tokens([1, 5])"},
      {"global_tokens([5], rows=false, cols=false)", "none"},
      {"document([3, 0, 2])", "document([3, 2])"},
      {"shifted(sink(2), 0, 0)", "shifted(prefix(2))"},
      {"per_head([causal])", "causal"},
      {"streaming(2, 5)", "causal & (prefix(2) | window(5, 0))"},
      {"bert_padding([3, 4])", "key_lengths([3, 4])"},
  }};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(parse(text).to_text(), expected) << text;
    EXPECT_EQ(fingerprint_of_text(text), fingerprint_of_text(expected)) << text;
  }
}

TEST(Canonical, KeepsDifferentMasksApart) {
  const std::vector<std::string> texts = {"all",
                                          "none",
                                          "causal",
                                          "causal(1)",
                                          "causal(-1)",
                                          "window(1, 0)",
                                          "window(0, 1)",
                                          "window(1, -1)",
                                          "chunked(1)",
                                          "block_causal(1)",
                                          "prefix(1)",
                                          "global(1, 1)",
                                          "global(1)",
                                          "global_tokens([1])",
                                          "global_tokens([1], false)",
                                          "global_tokens([1], cols=false)",
                                          "~causal",
                                          "causal & prefix(1)",
                                          "causal | prefix(1)",
                                          "shifted(prefix(1), 1)",
                                          "shifted(prefix(1), dk=1)",
                                          "per_head([causal, prefix(1)])",
                                          "per_head([prefix(1), causal])",
                                          "per_batch([causal, prefix(1)])",
                                          "document([1, 2])",
                                          "document([2, 1])",
                                          "key_lengths([1, 2])",
                                          "random(0.5)",
                                          "random(0.5, 1)",
                                          "random(0.5, 1, true)",
                                          "random_blocks(1, 1)",
                                          "random_blocks(1, rate=1)",
                                          "tree([-1, 0])",
                                          "tree([-1, -1])",
                                          "tree([-1, 0], 1)",
                                          "intervals([[0], [1]], [[1], [2]])",
                                          "intervals([[0, 1]], [[1, 2]])",
                                          "dense(shape=[1, 3], bits=\"03\")",
                                          "dense(shape=[1, 2], bits=\"03\")",
                                          "dense(shape=[2, 1], bits=\"0101\")",
                                          "blocks(block_q=1, block_kv=1, heads=[[[0], []]])",
                                          "blocks(block_q=1, block_kv=1, heads=[[[], [0]]])",
                                          "blocks(block_q=1, block_kv=1, heads=[[[0]], [[]]])",
                                          "blocks(block_q=1, block_kv=2, heads=[[[0], []]])"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(fingerprint_of_text(texts[i]), fingerprint_of_text(texts[j]))
          << texts[i] << " and " << texts[j];
    }
  }
}

TEST(Canonical, HashesOneElementOfALongListOrArray) {
  IntList lengths(1000, 3);
  const Mask a = document(lengths);
  lengths[777] = 4;
  EXPECT_NE(a.fingerprint(), document(lengths).fingerprint());
  EXPECT_EQ(a.fingerprint(), document(IntList(1000, 3)).fingerprint());

  std::vector<std::uint8_t> array(300 * 300, 1);
  const Mask b = dense(TensorView(array.data(), DType::kBool, {300, 300}));
  array[299 * 300 + 299] = 0;
  const Mask c = dense(TensorView(array.data(), DType::kBool, {300, 300}));
  EXPECT_NE(b.fingerprint(), c.fingerprint());
  EXPECT_NE(b.to_text(), c.to_text());
  EXPECT_EQ(parse(c.to_text()).fingerprint(), c.fingerprint());
  EXPECT_EQ(from_json(c.to_json()).fingerprint(), c.fingerprint());
  expect_same_meaning(c, parse(c.to_text()));
}

TEST(Canonical, DescribesLongListsShortly) {
  EXPECT_EQ(document(IntList(40, 128)).describe(), "document([128, 128, 128, ... 37 more])");
  EXPECT_EQ(parse("document([1, 2])").describe(), "document([1, 2])");
  std::vector<std::uint8_t> array(10 * 20, 1);
  EXPECT_EQ((dense(TensorView(array.data(), DType::kBool, {10, 20})) & causal()).describe(),
            "causal & dense[1,1,10,20]");
  EXPECT_EQ(parse("blocks(block_q=8, block_kv=8, heads=[[[0, 1], [1]]])").describe(),
            "blocks(block_q=8, block_kv=8, heads=[1 x 2 rows, 3 blocks])");
}

TEST(Canonical, PrintsBoundMasksSoThatTheyReadBack) {
  const Mask mask = parse("causal & random_blocks(2, count=1, per_head=true) | prefix(2)");
  const Mask bound = mask.bind({2, 3, 8, 12}, Alignment::kBottomRight);
  const Mask again = parse(bound.to_text());
  EXPECT_TRUE(again.bound());
  EXPECT_EQ(again.fingerprint(), bound.fingerprint());
  EXPECT_NE(mask.fingerprint(), bound.fingerprint());
  expect_same_meaning(bound, again);
  expect_same_meaning(bound, from_json(bound.to_json()));
}

TEST(Canonical, FlattensLongChains) {
  Mask mask = causal();
  for (int i = 1; i <= 2000; ++i) mask = mask | prefix(i) | none();
  const Mask again = parse(mask.to_text());
  EXPECT_EQ(again.fingerprint(), mask.fingerprint());
}

// XXH3-128, by another implementation (xxhash for Python), of two fields, each behind its length in
// 8 little-endian bytes: "stof mask 1" and the key.
TEST(Canonical, FingerprintsAreTheSameOnEveryMachine) {
  const std::array<std::pair<const char*, const char*>, 6> cases = {{
      {"causal", "cec464f401a7c844a64abb510260626a"},
      {"causal & window(256, 0) | prefix(64)", "7cb68375b78620686b2936623835a7e6"},
      {"random(rate=0.1, seed=7)", "2c43a7dd58c21e2d91c05eefe2a5ed07"},
      {"bigbird", "f0f29881bef72a8a30e60a66bedc2eda"},
      {"dense(shape=[1, 1, 2, 10], bits=\"ff030100\")", "8f6eaa7f8dec667ff3737e845753ddab"},
      {"blocks(block_q=64, block_kv=64, heads=[[[0, 2], [1]]])",
       "494ecda44605115d4b28ea85a9f5e7a4"},
  }};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(fingerprint_of_text(text).hex(), expected) << text;
  }
}

TEST(Canonical, NestingAtTheLimitReadsBack) {
  Mask mask = causal();
  for (int i = 0; i < kMaxNesting; ++i) {
    mask = i % 3 == 0 ? mask & chunked(i + 2) : i % 3 == 1 ? mask | prefix(i + 1) : ~mask;
  }
  EXPECT_EQ(parse(mask.to_text()).fingerprint(), mask.fingerprint());
  EXPECT_EQ(from_json(mask.to_json()).fingerprint(), mask.fingerprint());
  Mask heads = causal();
  for (int i = 0; i < kMaxNesting; ++i) heads = per_head({heads, causal(i)});
  EXPECT_EQ(parse(heads.to_text()).fingerprint(), heads.fingerprint());
  EXPECT_EQ(from_json(heads.to_json()).fingerprint(), heads.fingerprint());
}

}  // namespace
}  // namespace stof::mask
