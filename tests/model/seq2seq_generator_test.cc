// Texts turned into texts, on a tiny T5 with a unigram tokenizer of single characters.

#include "stof/seq2seq_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/expect_error.h"
#include "model/tiny_llama.h"
#include "model/tiny_t5.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The golden model whose greedy text ends by itself.
class Seq2SeqGeneratorTest : public testing::Test {
 protected:
  Seq2SeqGeneratorTest() {
    const T5Golden golden;
    const nlohmann::json& entry = golden.at("gated-gelu");
    nlohmann::json config = entry.at("config");
    config["task_specific_params"] = {{"summarization", {{"prefix", "sum: "}, {"max_length", 5}}},
                                      {"translation_en_to_de", {{"prefix", "to german: "}}}};
    golden.write(folder, config, golden.weights(entry));
    folder.write("tokenizer.json", tiny_unigram_json().dump());
    model.emplace(Seq2SeqGenerator::load(folder.path()));
  }

  /// By the whole of what was written before, every time anew.
  std::vector<std::int32_t> greedy(const std::string& text, std::size_t most) const {
    const std::vector<std::int32_t> ids = model->tokenize(text);
    std::vector<std::int32_t> written;
    while (written.size() < most && (written.empty() || written.back() != 1)) {
      const Tensor logits = model->logits(ids, written, one_thread());
      const auto last = logits.as<float>().last(static_cast<std::size_t>(model->vocab_size()));
      written.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
    }
    return written;
  }

  TemporaryFolder folder;
  std::optional<Seq2SeqGenerator> model;
};

TEST_F(Seq2SeqGeneratorTest, SaysWhatItIs) {
  EXPECT_THAT(model->describe(), AllOf(HasSubstr("t5: encoder of 2 layers, decoder of 2"),
                                       HasSubstr("gelu_tanh gates"), HasSubstr("vocabulary 40")));
  EXPECT_EQ(model->place(), "CPU, float32");
  EXPECT_EQ(model->encoder_layers(), 2);
  EXPECT_EQ(model->decoder_layers(), 2);
  EXPECT_EQ(model->num_heads(), 2);
  EXPECT_EQ(model->hidden_size(), 16);
}

TEST_F(Seq2SeqGeneratorTest, KnowsTasksByNamesAndCodes) {
  EXPECT_EQ(model->tasks().size(), 2u);
  EXPECT_EQ(model->summary().prefix, "sum: ");
  EXPECT_EQ(model->summary().max_tokens, 5);
  for (const auto& [source, target] : {std::pair{"en", "de"}, {"English", "German"}})
    EXPECT_EQ(model->translation(source, target).prefix, "to german: ");
  EXPECT_EQ(model->translation("en", "fr").prefix, "translate English to French: ");
  EXPECT_EQ(model->translation("Dutch", "ro").prefix, "translate Dutch to Romanian: ");
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { model->translation("en", "nl"); }),
              AllOf(HasSubstr("target: expected"), HasSubstr("\"nl\"")));
}

TEST_F(Seq2SeqGeneratorTest, PutsTheEndTokenBehindATextOnce) {
  const std::vector<std::int32_t> ids = model->tokenize("a b");
  EXPECT_EQ(ids, (std::vector<std::int32_t>{3, 4, 3, 5, 1}));
  EXPECT_EQ(model->detokenize(ids), "a b");
  EXPECT_EQ(model->tokenize(""), std::vector<std::int32_t>{1});
}

TEST_F(Seq2SeqGeneratorTest, WritesWhatItsLogitsSayInPieces) {
  for (const std::string text : {"the house is small", "", "x"}) {
    GenerateOptions options = one_thread();
    options.max_tokens = 20;
    std::string streamed;
    options.on_text = [&](std::string_view piece) { streamed += piece; };
    const GeneratedText result = model->generate(text, options);
    EXPECT_EQ(result.ids, greedy(text, 20)) << text;
    EXPECT_EQ(result.text, model->detokenize(result.ids)) << text;
    EXPECT_EQ(streamed, result.text) << text;
    EXPECT_EQ(result.prompt_tokens, static_cast<std::int64_t>(model->tokenize(text).size()));
    EXPECT_EQ(result.reason,
              result.ids.back() == 1 ? StopReason::kEndToken : StopReason::kMaxTokens);
  }
}

TEST_F(Seq2SeqGeneratorTest, WritesTextsSideBySideAsEachAlone) {
  const std::vector<std::string> texts = {"the house is small", "x", "a longer text than others",
                                          ""};
  GenerateOptions options = one_thread();
  options.max_tokens = 12;
  const std::vector<GeneratedText> together = model->generate_all(texts, options);
  ASSERT_EQ(together.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(together[i].ids, model->generate(texts[i], options).ids) << texts[i];
  EXPECT_TRUE(model->generate_all({}, options).empty());
  options.on_text = [](std::string_view) {};
  EXPECT_THAT(
      expect_error(ErrorCode::kInvalidArgument, [&] { model->generate_all(texts, options); }),
      HasSubstr("on_text"));
}

TEST_F(Seq2SeqGeneratorTest, HonoursOptions) {
  GenerateOptions options = one_thread();
  options.max_tokens = 3;
  const std::string text = "the house is small";
  EXPECT_EQ(model->generate(text, options).ids.size(), 3u);
  options.max_tokens = 20;
  const GeneratedText plain = model->generate(text, options);
  ASSERT_GE(plain.text.size(), 3u);
  options.stop = {plain.text.substr(2, 1)};
  EXPECT_EQ(model->generate(text, options).reason, StopReason::kStopString);
  options.stop.clear();
  options.temperature = 3;
  options.seed = 5;
  const GeneratedText drawn = model->generate(text, options);
  EXPECT_NE(drawn.ids, plain.ids);
  EXPECT_EQ(model->generate(text, options).ids, drawn.ids);
  options.temperature = 0;
  options.max_tokens = 0;
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { model->generate(text, options); }),
              HasSubstr("max_tokens: expected at least 1, got 0"));
  // Of layers and heads too.
  const std::vector<std::int32_t> ids = model->tokenize(text);
  GenerateOptions masked = one_thread();
  masked.mask = mask::window(1, 1);
  EXPECT_GT(relative_error(model->encode(ids, masked), model->encode(ids, one_thread())), 1e-2);
  masked.mask = mask::MaskSet(mask::all(), {{{{5, 5}}, {}, mask::causal()}});
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument, [&] { model->encode(ids, masked); }),
              HasSubstr("layers"));
}

TEST_F(Seq2SeqGeneratorTest, RefusesTokenizersThatDoNotFit) {
  nlohmann::json tokenizer = tiny_unigram_json();
  for (int i = 0; i < 20; ++i) tokenizer["model"]["vocab"].push_back({std::to_string(i), -9.0});
  folder.write("tokenizer.json", tokenizer.dump());
  EXPECT_THAT(expect_error(ErrorCode::kCorrupt, [&] { Seq2SeqGenerator::load(folder.path()); }),
              HasSubstr("vocabulary size, 40"));
  EXPECT_THAT(expect_error(ErrorCode::kInvalidArgument,
                           [&] { Seq2SeqGenerator::load(folder.path() + "/config.json"); }),
              HasSubstr("a folder with config.json"));
}

}  // namespace
}  // namespace stof::model
