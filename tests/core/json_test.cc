#include "core/json.h"

#include <gtest/gtest.h>

#include <string>

#include "stof/error.h"

namespace stof {
namespace {

/// The message of the Corrupt error that parsing must give.
std::string refusal(const std::string& text) {
  try {
    parse_json(text, "some.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return "";
}

TEST(ParseJson, ReadsADocument) {
  const nlohmann::json json = parse_json(R"({"a": [1, {"b": "x"}], "c": {"b": 2.5}})", "test");
  EXPECT_EQ(json["a"][1]["b"], "x");
  EXPECT_EQ(json["c"]["b"], 2.5);
}

TEST(ParseJson, RefusesARepeatedKeyInOneObjectOnly) {
  EXPECT_NE(refusal(R"({"x": {"key": 1, "key": 2}})").find("\"key\" appears twice"),
            std::string::npos);
  EXPECT_EQ(parse_json(R"([{"key": 1}, {"key": {"key": 2}}])", "test").size(), 2u);
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_NE(refusal(std::string(100000, '[')).find("nesting"), std::string::npos);
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "test"));
  EXPECT_THROW(parse_json(std::string(65, '[') + std::string(65, ']'), "test"), Error);
}

TEST(ParseJson, NamesFileAndByteOfASyntaxError) {
  const std::string message = refusal("{\"a\": 1,}");
  EXPECT_NE(message.find("some.json"), std::string::npos);
  EXPECT_NE(message.find("byte 9"), std::string::npos) << message;
}

TEST(ParseJson, RefusesOtherDamage) {
  refusal("");
  refusal("{} {}");
  refusal(std::string("{}\0garbage", 10));
  refusal("[1e999]");
  refusal("[\"\xff\"]");
  refusal("[NaN]");
}

}  // namespace
}  // namespace stof
