// Masks of layers and heads: JSON, what is refused, and which mask a layer has.

#include "stof/mask_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stof/error.h"

namespace stof::mask {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of_set(const std::string& json) {
  try {
    MaskSet::from_json(json, "m.json");
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}

TEST(MaskSet, GivesEachLayerAndHeadTheLastRuleThatSpeaksOfIt) {
  const MaskSet set = MaskSet::from_json(R"J({"default": "causal", "rules": [
      {"layers": "1-3", "mask": "window(4, 0)"},
      {"layers": [2, "4 - 5"], "heads": "1,3", "mask": "sink(2)"},
      {"layers": 5, "mask": "all"}]})J");
  EXPECT_EQ(set.num_layers_named(), 6);
  EXPECT_EQ(set.num_heads_named(), 4);
  const auto groups = set.groups(7, 4);
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 6));
  EXPECT_EQ(groups[0].mask.to_text(), "causal");
  EXPECT_THAT(groups[1].layers, ElementsAre(1, 3));
  EXPECT_EQ(groups[1].mask.to_text(), window(4, 0).to_text());
  EXPECT_EQ(groups[1].name, "mask set: layers 1, 3");
  EXPECT_THAT(groups[2].layers, ElementsAre(2));
  EXPECT_EQ(groups[2].mask.fingerprint(),
            per_head({window(4, 0), sink(2), window(4, 0), sink(2)}).fingerprint());
  EXPECT_EQ(set.of_layer(4, 4).fingerprint(),
            per_head({causal(), sink(2), causal(), sink(2)}).fingerprint());
  EXPECT_EQ(set.of_layer(5, 4).to_text(), "all");
  const MaskSet again = MaskSet::from_json(set.to_json());
  EXPECT_EQ(again.to_json(), set.to_json());
  EXPECT_EQ(again.fingerprint(), set.fingerprint());
  EXPECT_NE(MaskSet(causal()).fingerprint(), set.fingerprint());
}

TEST(MaskSet, IsOneMaskWithoutRules) {
  for (const char* json :
       {R"J({"op": "window", "left": 3, "right": 0})J", R"J({"default": "window(3, 0)"})J",
        R"J({"default": "window(3, 0)", "rules": []})J"}) {
    const MaskSet set = MaskSet::from_json(json);
    EXPECT_TRUE(set.uniform());
    EXPECT_EQ(set.otherwise().to_text(), window(3, 0).to_text());
    EXPECT_EQ(set.groups(5, 2).size(), 1u);
    EXPECT_EQ(set.fingerprint(), MaskSet(window(3, 0)).fingerprint());
  }
  EXPECT_TRUE(MaskSet().uniform());
  EXPECT_EQ(MaskSet::from_json("{}").otherwise().to_text(), "all");
}

TEST(MaskSet, RefusesByFieldWhatItCannotRead) {
  const auto expect = [](const std::string& json, const char* part) {
    EXPECT_THAT(refusal_of_set(json), HasSubstr(part)) << json;
  };
  expect("[]", "InvalidArgument: m.json: expected an object");
  expect("{", "Corrupt: m.json: invalid JSON");
  expect(R"J({"rule": []})J", "m.json: unknown field \"rule\"; did you mean \"rules\"?");
  expect(R"J({"rules": {}})J", "m.json: rules: expected a list");
  expect(R"J({"rules": [3]})J", "m.json: rules[0]: expected an object");
  expect(R"J({"rules": [{"layers": 1}]})J", "m.json: rules[0]: expected a field \"mask\"");
  expect(R"J({"rules": [{"head": 1, "mask": "all"}]})J", "rules[0]: unknown field \"head\"");
  expect(R"J({"default": 3})J", "m.json: default: expected a mask's text");
  expect(R"J({"default": "casual"})J", "m.json: default: mask, column 1: unknown mask \"casual\"");
  expect(R"J({"rules": [{"mask": {"op": "window", "left": 1}}]})J", "m.json: rules[0].mask: $");
  expect(R"J({"rules": [{"mask": "dense(\"no.npy\")"}]})J", "rules[0].mask: ");
  for (const char* bad : {"\"\"", "\"1-\"", "\"3-1\"", "\"1,,2\"", "\"x\"", "\"-1\"", "\"1048576\"",
                          "\"99999999999999999999\""})
    expect(std::string(R"J({"rules": [{"layers": )J") + bad + R"J(, "mask": "all"}]})J",
           "m.json: rules[0].layers: expected indices");
  expect(R"J({"rules": [{"heads": [], "mask": "all"}]})J", "rules[0].heads: expected at least one");
  expect(R"J({"rules": [{"heads": [0, -1], "mask": "all"}]})J",
         "rules[0].heads[1]: expected an index");
  expect(R"J({"rules": [{"heads": 18446744073709551615, "mask": "all"}]})J",
         "rules[0].heads: expected");
  expect(R"J({"rules": [{"heads": 1.5, "mask": "all"}]})J",
         "rules[0].heads: expected an index, a text");
  EXPECT_THROW(MaskSet(all(), {{{{3, 2}}, {}, all()}}), Error);
  EXPECT_THROW(MaskSet(all(), {{{}, {{-1, 2}}, all()}}), Error);
}

}  // namespace
}  // namespace stof::mask
