#include "core/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "stof/error.h"

namespace stof {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(HumanBytes, UsesPowersOf1024) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(human_bytes(std::uint64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "16.0 EiB");
}

TEST(HumanDuration, PicksTheUnit) {
  EXPECT_EQ(human_duration(0), "0 ns");
  EXPECT_EQ(human_duration(850e-9), "850 ns");
  EXPECT_EQ(human_duration(12.34e-6), "12.3 us");
  EXPECT_EQ(human_duration(4.561e-3), "4.56 ms");
  EXPECT_EQ(human_duration(0.9999), "1.00 s");
  EXPECT_EQ(human_duration(125), "2 min 05 s");
  EXPECT_EQ(human_duration(59.97), "1 min 00 s");
  EXPECT_EQ(human_duration(3 * 3600 + 7 * 60 + 2), "3 h 07 min");
  EXPECT_EQ(human_duration(-1), "unknown");
  EXPECT_EQ(human_duration(std::numeric_limits<double>::infinity()), "unknown");
}

TEST(HumanCount, GroupsByThousands) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1,000");
  EXPECT_EQ(human_count(-1234567), "-1,234,567");
  EXPECT_EQ(human_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(QuoteText, EscapesWhatATerminalShouldNotSee) {
  EXPECT_EQ(quote_text("plain.weight"), "\"plain.weight\"");
  EXPECT_EQ(quote_text("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quote_text("\x1b[31m\n"), "\"\\x1b[31m\\x0a\"");
  EXPECT_EQ(quote_text("caf\xc3\xa9 \xff"), "\"caf\xc3\xa9 \\xff\"");
  EXPECT_EQ(quote_text(std::string(1000, 'x'), 5), "\"xxxxx...\"");
}

TEST(EditDistance, CountsTheFourEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("window", "windo"), 1u);
  EXPECT_EQ(edit_distance("causal", "casual"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

RC_GTEST_PROP(EditDistance, IsAMetricOnShortStrings, ()) {
  const auto word = rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const std::string a = *word, b = *word;
  const std::size_t distance = edit_distance(a, b);
  RC_ASSERT((distance == 0) == (a == b));
  RC_ASSERT(distance == edit_distance(b, a));
  RC_ASSERT(distance <= std::max(a.size(), b.size()));
  RC_ASSERT(distance >= std::max(a.size(), b.size()) - std::min(a.size(), b.size()));
}

TEST(NearestNames, ListsTheBestFirstAndNothingFar) {
  const std::string_view names[] = {"encoder.layer.0.output.dense.weight", "causal", "window",
                                    "chunked"};
  EXPECT_THAT(nearest_names("windwo", names), ElementsAre("window"));
  EXPECT_THAT(nearest_names("encoder.layer.0.ouput.dense.weight", names),
              ElementsAre("encoder.layer.0.output.dense.weight"));
  EXPECT_THAT(nearest_names("xy", names), IsEmpty());
  EXPECT_THAT(nearest_names(std::string(100000, 'w'), names), IsEmpty());
  EXPECT_EQ(near_name_hint("casual", names), "; did you mean \"causal\"?");
  EXPECT_EQ(near_name_hint("nothing like it", names), "");
}

TEST(Utf8, RefusesIllFormedSequences) {
  EXPECT_EQ(find_invalid_utf8("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);            // a lone continuation byte
  EXPECT_EQ(find_invalid_utf8("\xc0\xaf"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xed\xa0\x80"), 1u);     // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0u);  // past U+10FFFF
  EXPECT_EQ(find_invalid_utf8("abc\xe2\x82"), 3u);       // cut short
  EXPECT_EQ(find_invalid_utf8(std::string_view("\0", 1)), std::nullopt);
}

TEST(Utf8, RoundTripsEveryScalarValue) {
  for (char32_t value = 0; value <= 0x110000; ++value) {
    std::string text = "x";
    if (value == 0x110000 || (value >= 0xd800 && value <= 0xdfff)) {
      EXPECT_THROW(append_utf8(text, value), Error);
      EXPECT_EQ(text, "x");
      continue;
    }
    append_utf8(text, value);
    const std::optional<CodePoint> point = decode_utf8(text, 1);
    ASSERT_TRUE(point) << static_cast<std::uint32_t>(value);
    ASSERT_EQ(point->value, value);
    ASSERT_EQ(point->bytes, text.size() - 1);
  }
}

}  // namespace
}  // namespace stof
