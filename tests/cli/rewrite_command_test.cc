// stof run --task translate and summarise, on a tiny T5.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"
#include "model/tiny_t5.h"
#include "stof/seq2seq_generator.h"

namespace stof::cli {
namespace {

using testing::HasSubstr;

class Rewrite : public testing::Test {
 protected:
  Rewrite() {
    const model::T5Golden golden;
    const nlohmann::json& entry = golden.at("gated-gelu");
    nlohmann::json config = entry.at("config");
    config["task_specific_params"] = {{"summarization", {{"prefix", "sum "}, {"max_length", 5}}}};
    golden.write(folder, config, golden.weights(entry));
    folder.write("tokenizer.json", model::tiny_unigram_json().dump());
  }

  Finished run(const std::string& task, std::vector<std::string> more) const {
    std::vector<std::string> command = {"run",       "--task", task,       "--model", folder.path(),
                                        "--threads", "1",      "--device", "cpu"};
    command.insert(command.end(), more.begin(), more.end());
    return run_stof(command);
  }

  model::TemporaryFolder folder;
};

TEST_F(Rewrite, WritesWhatTheLibraryDoes) {
  const Seq2SeqGenerator generator = Seq2SeqGenerator::load(folder.path());
  GenerateOptions options;
  options.max_tokens = 7;
  options.num_threads = 1;
  const GeneratedText expected =
      generator.generate("translate English to German: the house", options);
  const Finished streamed = run("translate", {"--target", "de", "--max-tokens", "7", "the house"});
  EXPECT_EQ(streamed.exit_code, 0) << streamed.err;
  EXPECT_EQ(streamed.out, expected.text + "\n");
  EXPECT_THAT(streamed.err, HasSubstr("wrote"));
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--target", "German", "--source", "English"},
        {"--prefix", "translate English to German: "}}) {
    std::vector<std::string> more = {"--json", "--max-tokens", "7", "the house"};
    more.insert(more.begin(), how.begin(), how.end());
    const Finished finished = run("translate", more);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const auto json = nlohmann::json::parse(finished.out);
    EXPECT_EQ(json.at("ids"), expected.ids);
    EXPECT_EQ(json.at("written"), expected.text);
    EXPECT_EQ(json.at("text"), "the house");
    EXPECT_EQ(json.at("prefix"), "translate English to German: ");
  }
}

TEST_F(Rewrite, TakesTheTasksPrefixAndLength) {
  const Seq2SeqGenerator generator = Seq2SeqGenerator::load(folder.path());
  GenerateOptions options;
  options.max_tokens = 5;
  options.num_threads = 1;
  const std::vector<GeneratedText> expected =
      generator.generate_all({"sum a house", "sum x"}, options);
  const Finished finished = run("summarise", {"--batch", "2", "a house", "x"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.out, expected[0].text + "\n" + expected[1].text + "\n");
}

TEST_F(Rewrite, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(user_error(run("translate", {"x"})), HasSubstr("--target: "));
  EXPECT_THAT(user_error(run("translate", {"--target", "nl", "x"})), HasSubstr("\"nl\""));
  EXPECT_THAT(user_error(run("summarise", {"--target", "de", "x"})), HasSubstr("--target: "));
  EXPECT_THAT(user_error(run("translate", {"--prefix", "p", "--source", "en", "x"})),
              HasSubstr("--source: expected none beside --prefix"));
  EXPECT_THAT(user_error(run("summarise", {"--output", "o.npy", "x"})), HasSubstr("--output: "));
  EXPECT_THAT(user_error(run_stof({"run", "--task", "summarise", "x"})), HasSubstr("--model: "));
  EXPECT_THAT(user_error(run_stof({"run", "--prefix", "p", "x"})), HasSubstr("--prefix: "));
}

TEST_F(Rewrite, IsTimedByBench) {
  const Finished finished = run_stof(
      {"bench", "model", "--model", folder.path(), "--json", "--threads", "1", "--device", "cpu"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("encodes a text"));
  EXPECT_THAT(finished.out, HasSubstr("writes a summary"));
}

}  // namespace
}  // namespace stof::cli
