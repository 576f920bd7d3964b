#include <gtest/gtest.h>

#include "mask/registry.h"
#include "stof/error.h"
#include "stof/mask.h"

namespace stof::mask {
namespace {

std::string refusal_of_json(const std::string& json, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    from_json(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << json;
    return error.what();
  }
  return "no error";
}

TEST(MaskJson, IsWrittenInCanonicalOrder) {
  EXPECT_EQ(parse("window(right=0, left=256) | ~causal").to_json(),
            R"({"op":"or","of":[{"op":"window","left":256,"right":0},)"
            R"({"op":"not","of":{"op":"causal","offset":0}}]})");
  EXPECT_EQ(parse("dense(shape=[2, 3], bits=\"0105\")").to_json(),
            R"({"op":"dense","shape":[1,1,2,3],"bits":"0105"})");
  EXPECT_EQ(parse("blocks(block_q=4, block_kv=8, heads=[[[2, 0], []]])").to_json(),
            R"({"op":"blocks","block_q":4,"block_kv":8,"heads":[[[0,2],[]]],"row_sizes":[],)"
            R"("col_sizes":[]})");
  EXPECT_EQ(parse("random(0.1, 18446744073709551615)").to_json(),
            R"({"op":"random","rate":0.1,"seed":18446744073709551615,"per_head":false})");
  EXPECT_EQ(parse("intervals([[0, 1]], [[2, 3]])").to_json(),
            R"({"op":"intervals","begin":[[0,1]],"end":[[2,3]]})");
}

TEST(MaskJson, TakesFieldsInAnyOrderAndFillsDefaults) {
  EXPECT_EQ(from_json(R"({"right": 0, "op": "window", "left": 3})").to_text(), "window(3, 0)");
  EXPECT_EQ(from_json(R"({"op": "causal"})").to_text(), "causal");
  EXPECT_EQ(from_json(R"({"op": "sliding"})").to_text(), "window(256, 256)");
  EXPECT_EQ(from_json(R"({"op": "random", "rate": 1})").to_text(), "random(1)");
}

TEST(MaskJson, EveryExampleRoundTrips) {
  for (const Function& function : functions()) {
    const Mask mask = parse(function.example);
    EXPECT_EQ(from_json(mask.to_json()).fingerprint(), mask.fingerprint()) << function.name;
    EXPECT_EQ(from_json(mask.to_json()).to_json(), mask.to_json()) << function.name;
  }
}

TEST(MaskJson, NamesThePathOfWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"op":"and","of":[{"op":"all"},{"op":"window","left":"x","right":0}]})",
       "$.of[1].left: expected a whole number, got \"x\""},
      {R"({"op":"window","left":1.5,"right":0})", "$.left: expected a whole number, got 1.5"},
      {R"({"op":"window","left":null,"right":0})", "$.left: expected a whole number, got null"},
      {R"({"op":"window","left":3})", "$: window: right is missing; expected window(left, right)"},
      {R"({"op":"window","left":3,"rigth":0})",
       "$: window has no parameter \"rigth\"; did you mean \"right\"?"},
      {R"({"op":"not","of":{"op":"casual"}})",
       "$.of.op: unknown mask \"casual\"; did you mean \"causal\"?"},
      {R"({"op":"not","of":[{"op":"causal"}]})", "$.of: expected a mask, got a list"},
      {R"({"op":"or","of":{"op":"causal"}})", "$.of: expected a list of masks, got a mask"},
      {R"({"op":"or","of":[1]})", "$.of[0]: expected a mask, got 1"},
      {R"({"left":3})", "$: expected a field \"op\" with the mask's name, got none"},
      {R"({"op":3})", "$.op: expected the name of a mask, got 3"},
      {"[]", "$: expected a mask such as {\"op\": \"causal\"}, got a list"},
      {"3", "$: expected a mask such as {\"op\": \"causal\"}, got 3"},
      {R"({"op":"not","of":{"op":"chunked","n":0}})",
       "$.of: chunked(n=0): expected 1 to 1099511627776"},
      {R"({"op":"blocks","block_q":1,"block_kv":1,"heads":[[[0],[true]]]})",
       "$.heads[0][1][0]: expected a block column (a whole number), got true"},
      {R"({"op":"dense","shape":[1000000000,1000000000,1000000000,1000000000],"bits":""})",
       "$: dense: shape: [1000000000, 1000000000, 1000000000, 1000000000] is larger than any "
       "array"},
      {R"({"op":"dense","shape":[1,2],"bits":"0g"})",
       "$: dense: bits: expected hexadecimal digits, got \"0g\" at digit 0"},
      {R"({"op":"blocks","file":"a.json"})",
       "$: file: expected the data itself, got the file \"a.json\"; files are not read here"},
  };
  for (const auto& [json, message] : cases) EXPECT_EQ(refusal_of_json(json), message) << json;
}

TEST(MaskJson, RefusesWhatIsNoJson) {
  for (const std::string json :
       {"", "{", "causal", R"({"op":"causal"} x)", R"({"op":"causal","op":"all"})",
        R"({"op":"causal","offset":1e999})", "{\"op\":\"\xff\"}"}) {
    EXPECT_NE(refusal_of_json(json, ErrorCode::kCorrupt), "no error") << json;
  }
}

TEST(MaskJson, RefusesDeepNesting) {
  std::string json;
  for (int i = 0; i < 150; ++i) json += R"({"op":"not","of":)";
  json += R"({"op":"causal"})" + std::string(150, '}');
  EXPECT_NE(refusal_of_json(json).find("nested deeper than 100 levels"), std::string::npos);
  EXPECT_NE(refusal_of_json(std::string(100000, '['), ErrorCode::kCorrupt), "no error");
}

}  // namespace
}  // namespace stof::mask
