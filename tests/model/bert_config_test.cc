#include "model/bert_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/test_data.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

nlohmann::json valid() {
  return {{"model_type", "bert"},
          {"hidden_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 3},
          {"intermediate_size", 40},
          {"vocab_size", 50},
          {"max_position_embeddings", 64},
          {"layer_norm_eps", 1e-7},
          {"type_vocab_size", 3},
          {"hidden_act", "gelu"},
          {"position_embedding_type", "absolute"}};
}

BertConfig parse(const nlohmann::json& json) {
  return parse_bert_config(json.dump(), "dir/config.json");
}

std::string error_of(ErrorCode code, const nlohmann::json& json) {
  try {
    parse(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("dir/config.json"));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown for " << json;
  return "";
}

TEST(BertConfig, ReadsEveryField) {
  const BertConfig config = parse(valid());
  EXPECT_EQ(config.hidden_size, 24);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 3);
  EXPECT_EQ(config.head_dim(), 8);
  EXPECT_EQ(config.intermediate_size, 40);
  EXPECT_EQ(config.vocab_size, 50);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.num_segments, 3);
  EXPECT_EQ(config.layer_norm_eps, 1e-7f);
  EXPECT_EQ(config.activation, cpu::Activation::kGeluErf);
}

TEST(BertConfig, ReadsTheRealCheckpoint) {
  const BertConfig config = load_bert_config(minilm_folder());
  EXPECT_EQ(config.hidden_size, 384);
  EXPECT_EQ(config.num_layers, 6);
  EXPECT_EQ(config.num_heads, 12);
  EXPECT_EQ(config.max_positions, 512);
}

TEST(BertConfig, HasTheOriginalsDefaultsForOptionalFields) {
  nlohmann::json json = valid();
  for (const char* name :
       {"layer_norm_eps", "type_vocab_size", "hidden_act", "position_embedding_type"})
    json.erase(name);
  const BertConfig config = parse(json);
  EXPECT_EQ(config.layer_norm_eps, 1e-12f);
  EXPECT_EQ(config.num_segments, 2);
  EXPECT_EQ(config.activation, cpu::Activation::kGeluErf);
}

TEST(BertConfig, TellsTheActivationsApart) {
  // Case 31.
  const std::pair<const char*, cpu::Activation> kCases[] = {
      {"gelu", cpu::Activation::kGeluErf},        {"gelu_new", cpu::Activation::kGeluTanh},
      {"gelu_fast", cpu::Activation::kGeluTanh},  {"gelu_pytorch_tanh", cpu::Activation::kGeluTanh},
      {"gelu_python", cpu::Activation::kGeluErf}, {"relu", cpu::Activation::kRelu}};
  for (const auto& [name, activation] : kCases) {
    nlohmann::json json = valid();
    json["hidden_act"] = name;
    EXPECT_EQ(parse(json).activation, activation) << name;
  }
}

TEST(BertConfig, RefusesByNameWhatItCannotHonour) {
  const std::pair<const char*, nlohmann::json> kCases[] = {
      {"hidden_act", "silu"},        {"position_embedding_type", "relative_key"},
      {"is_decoder", true},          {"add_cross_attention", true},
      {"model_type", "electra"},     {"quantization_config", {{"bits", 8}}},
      {"pruned_heads", {{"0", {1}}}}};
  for (const auto& [name, value] : kCases) {
    nlohmann::json json = valid();
    json[name] = value;
    EXPECT_THAT(error_of(ErrorCode::kUnsupported, json),
                AllOf(HasSubstr(name), HasSubstr("expected"), HasSubstr("got")));
  }
  nlohmann::json json = valid();
  json["hidden_act"] = "silu";
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, json), HasSubstr("gelu_pytorch_tanh, relu"));
}

TEST(BertConfig, NamesFileAndFieldThatIsMissingOrWrong) {
  for (const char* name : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                           "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    nlohmann::json json = valid();
    json.erase(name);
    EXPECT_THAT(error_of(ErrorCode::kCorrupt, json), AllOf(HasSubstr(name), HasSubstr("no such")));
    for (const nlohmann::json& wrong :
         {nlohmann::json("12"), nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1.5),
          nlohmann::json(1e30), nlohmann::json(UINT64_MAX), nlohmann::json::array({1})}) {
      json[name] = wrong;
      EXPECT_THAT(error_of(ErrorCode::kCorrupt, json), HasSubstr(name));
    }
  }
  nlohmann::json json = valid();
  json["num_attention_heads"] = 5;
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, json),
              HasSubstr("a divisor of hidden_size, 24, got 5"));
  json = valid();
  json["layer_norm_eps"] = -1;
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, json), HasSubstr("layer_norm_eps"));
}

TEST(BertConfig, CallsBrokenFilesCorrupt) {
  for (const char* text : {"", "{", "[]", "null", "{\"a\": \xff}", "{} {}"}) {
    try {
      parse_bert_config(text, "dir/config.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    }
  }
}

TEST(BertConfig, AcceptsEarlyFilesThatNameOnlyTheirClass) {
  nlohmann::json json = valid();
  json.erase("model_type");
  json["architectures"] = {"BertForMaskedLM"};
  EXPECT_EQ(parse(json).hidden_size, 24);
  json["architectures"] = {"RobertaModel"};
  error_of(ErrorCode::kUnsupported, json);
}

}  // namespace
}  // namespace stof::model
