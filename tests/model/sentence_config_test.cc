#include "model/sentence_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/temporary_folder.h"
#include "model/test_data.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const json kTransformer = {{"type", "sentence_transformers.models.Transformer"}, {"path", ""}};
const json kPooling = {{"type", "sentence_transformers.models.Pooling"}, {"path", "1_Pooling"}};
const json kNormalize = {{"type", "sentence_transformers.models.Normalize"},
                         {"path", "2_Normalize"}};

TEST(SentenceConfig, ReadsTheRealCheckpoint) {
  const SentenceConfig config = load_sentence_config(minilm_folder());
  EXPECT_TRUE(config.stated);
  EXPECT_TRUE(config.normalize);
  EXPECT_EQ(config.pooling, cpu::Pooling::kMean);
  EXPECT_EQ(config.max_tokens, 256);
  EXPECT_EQ(config.width, 384);
  EXPECT_EQ(config.model_folder, minilm_folder());
}

TEST(SentenceConfig, TakesMeanWithoutNormalisationForAnOrdinaryFolder) {
  const TemporaryFolder folder;
  const SentenceConfig config = load_sentence_config(folder.path());
  EXPECT_FALSE(config.stated);
  EXPECT_FALSE(config.normalize);
  EXPECT_EQ(config.pooling, cpu::Pooling::kMean);
  EXPECT_EQ(config.max_tokens, 0);
}

TEST(SentenceConfig, ReadsEachPoolingModeAndAModelInASubfolder) {
  const std::pair<const char*, cpu::Pooling> kModes[] = {
      {"pooling_mode_mean_tokens", cpu::Pooling::kMean},
      {"pooling_mode_cls_token", cpu::Pooling::kCls},
      {"pooling_mode_max_tokens", cpu::Pooling::kMax}};
  for (const auto& [name, pooling] : kModes) {
    const TemporaryFolder folder;
    json transformer = kTransformer;
    transformer["path"] = "0_Transformer";
    folder.write("modules.json", json{transformer, kPooling}.dump());
    folder.write("1_Pooling/config.json",
                 json{{"word_embedding_dimension", 8}, {name, true}}.dump());
    folder.write("0_Transformer/sentence_bert_config.json", R"({"max_seq_length": 77})");
    const SentenceConfig config = load_sentence_config(folder.path());
    EXPECT_EQ(config.pooling, pooling) << name;
    EXPECT_FALSE(config.normalize);
    EXPECT_EQ(config.model_folder, folder.path() + "/0_Transformer");
    EXPECT_EQ(config.max_tokens, 77);
  }
}

std::string refusal(ErrorCode code, const json& modules, const json& pooling,
                    const std::string& file = "", const std::string& text = "") {
  const TemporaryFolder folder;
  folder.write("modules.json", modules.dump());
  folder.write("1_Pooling/config.json", pooling.dump());
  if (!file.empty()) folder.write(file, text);
  try {
    load_sentence_config(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(SentenceConfig, RefusesByNameWhatItCannotHonour) {
  const json modules = {kTransformer, kPooling, kNormalize};
  const json mean = {{"pooling_mode_mean_tokens", true}};
  const json dense = {{"type", "sentence_transformers.models.Dense"}, {"path", "2_Dense"}};
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  EXPECT_THAT(refusal(kUnsupported, {kTransformer, kPooling, dense}, mean), HasSubstr("Dense"));
  EXPECT_THAT(refusal(kUnsupported, json::array({kTransformer}), mean), HasSubstr("modules.json"));
  EXPECT_THAT(refusal(kUnsupported, {kTransformer, kNormalize}, mean), HasSubstr("Pooling"));
  EXPECT_THAT(refusal(kUnsupported, modules, {{"pooling_mode_lasttoken", true}}),
              HasSubstr("pooling_mode_lasttoken"));
  EXPECT_THAT(refusal(kUnsupported, modules,
                      {{"pooling_mode_mean_tokens", true}, {"pooling_mode_max_tokens", true}}),
              HasSubstr("got 2"));
  EXPECT_THAT(refusal(kUnsupported, modules, json::object()), HasSubstr("got 0"));
  EXPECT_THAT(refusal(kUnsupported, modules, mean, "config_sentence_transformers.json",
                      R"({"default_prompt_name": "query"})"),
              HasSubstr("default_prompt_name"));
  EXPECT_THAT(refusal(kUnsupported, modules, mean, "sentence_bert_config.json",
                      R"({"do_lower_case": true})"),
              HasSubstr("do_lower_case"));
  json escape = kPooling;
  escape["path"] = "../other";
  EXPECT_THAT(refusal(ErrorCode::kCorrupt, {kTransformer, escape}, mean), HasSubstr("path"));
  escape["path"] = "3_Pooling";
  EXPECT_THAT(refusal(ErrorCode::kNotFound, {kTransformer, escape}, mean), HasSubstr("3_Pooling"));
  EXPECT_THAT(refusal(ErrorCode::kCorrupt, {{"a", 1}}, mean), HasSubstr("modules.json"));
}

}  // namespace
}  // namespace stof::model
