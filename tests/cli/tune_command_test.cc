// stof tune, explain MODEL and the tuning records in stof cache, on the CPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"
#include "model/temporary_folder.h"
#include "model/tiny_bert.h"

namespace stof::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfig = R"({"model_type": "bert", "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100,
  "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu",
  "layer_norm_eps": 1e-12})";

/// A model's folder and a cache folder of its own.
class TuneCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "config.json") << kConfig;
    ::setenv("STOF_CACHE", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("STOF_CACHE"); }

  Finished run_on_model(std::vector<std::string> arguments, const Streams& streams = {}) {
    for (const char* more :
         {"--shape", "4x16", "--mask", "window(4,4)", "--device", "cpu", "--threads", "1"})
      arguments.emplace_back(more);
    return run_stof(arguments, streams);
  }

  TemporaryFolder folder_;
};

TEST_F(TuneCommand, TunesExplainsExportsAndImports) {
  const Finished untuned = run_on_model({"explain", folder_.path()});
  EXPECT_EQ(untuned.exit_code, 0) << untuned.err;
  EXPECT_THAT(untuned.out, HasSubstr("not tuned"));

  const Finished tuned = run_on_model({"tune", folder_.path(), "--budget", "4s", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const json result = json::parse(tuned.out);
  EXPECT_EQ(result.at("compared").at(0).at("name"), "rules only");
  EXPECT_EQ(result.at("faulty"), 0);

  const Finished shown = run_on_model({"explain", folder_.path(), "--html", folder_ / "page.html",
                                       "--trace", folder_ / "trace.json"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr(result.at("scheme").get<std::string>() + ", tuned in "));
  EXPECT_THAT(shown.out, HasSubstr("2 times:"));
  EXPECT_THAT(shown.out, HasSubstr("\n[  attention   layer.0.attention"));
  EXPECT_THAT(shown.out, HasSubstr("attention, which runs by itself"));

  // A page by itself: its only addresses are inside of it.
  const std::string page = read_file(folder_ / "page.html");
  EXPECT_THAT(page, HasSubstr("<h2>Timeline of a forward pass</h2>"));
  EXPECT_THAT(page, HasSubstr("data:image/png;base64,iVBORw0KGgo"));
  for (const char* outside : {"http:", "https:", "<script", "<link"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));

  const json trace = json::parse(read_file(folder_ / "trace.json"));
  double end = 0;
  int attentions = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), end - 1e-6);
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
    attentions += event.at("cat") == "attention";
  }
  EXPECT_EQ(attentions, 2);

  // Parts of fusion that are switched off are drawn as what runs in their place.
  ::setenv("STOF_FUSE", "off", 1);
  const Finished off = run_on_model({"explain", folder_.path()});
  EXPECT_THAT(off.out, AllOf(HasSubstr("scheme   14:5554"), HasSubstr("note     STOF_FUSE")));
  ::setenv("STOF_FUSE", "-onednn", 1);
  EXPECT_THAT(run_on_model({"explain", folder_.path()}).err,
              HasSubstr("STOF_FUSE leaves families"));
  ::unsetenv("STOF_FUSE");

  const std::string archive = folder_ / "records.jsonl";
  EXPECT_THAT(run_stof({"cache", "ls"}).out, HasSubstr("2 layers, 4 sequences, 64 rows"));
  EXPECT_THAT(run_stof({"cache", "verify"}).out, HasSubstr("tuning records are intact"));
  EXPECT_EQ(run_stof({"cache", "export", archive}).exit_code, 0);
  EXPECT_THAT(run_stof({"cache", "clear"}).out, HasSubstr("tuning records removed"));
  EXPECT_THAT(run_on_model({"explain", folder_.path()}).out, HasSubstr("not tuned"));
  EXPECT_EQ(run_stof({"cache", "import", archive}).exit_code, 0);
  EXPECT_EQ(run_on_model({"explain", folder_.path()}).out, shown.out);
}

TEST_F(TuneCommand, ExplainsADecoder) {
  std::ofstream(folder_ / "config.json") << R"({"model_type": "llama", "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 100, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": true})";
  const Finished tuned = run_on_model({"tune", folder_.path(), "--budget", "1s", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(json::parse(tuned.out).at("faulty"), 0);
  const Finished shown = run_on_model({"explain", folder_.path()});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("2 layers of 13 operators"), HasSubstr("\n[  attention"),
                               HasSubstr("one is behind the layers")));
}

TEST_F(TuneCommand, KeepsTheBestSoFarWhenInterrupted) {
  // Of a model that takes longer than the signal.
  std::string config = kConfig;
  config.replace(config.find("32"), 2, "768");
  config.replace(config.find("64"), 2, "3072");
  std::ofstream(folder_ / "config.json") << config;
  const Finished finished = run_shell(
      "bash", "timeout --foreground --preserve-status -s INT 3 \"$stof\" tune " + folder_.path() +
                  " --shape 8x64 --mask 'window(4,4)' --device cpu --threads 1 --budget 10m");
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr(": stopped\n"), HasSubstr("chosen")));
  EXPECT_THAT(run_stof({"cache", "verify"}).out, HasSubstr("tuning records are intact"));
}

TEST_F(TuneCommand, SaysWhatIsWrong) {
  EXPECT_THAT(user_error(run_stof({"tune", folder_.path(), "--shape", "4"})),
              HasSubstr("--shape: expected sequences x tokens each, as 8x512, got \"4\""));
  EXPECT_THAT(user_error(run_stof({"tune", folder_.path(), "--shape", "4x128"})),
              HasSubstr("the model has 64 positions"));
  EXPECT_THAT(user_error(run_stof({"tune", folder_.path(), "--budget", "soon"})),
              HasSubstr("--budget: expected a time as 30s or 2m, got \"soon\""));
  EXPECT_THAT(user_error(run_stof({"tune", folder_ / "absent"})),
              HasSubstr("expected the folder of an encoder's checkpoint"));
  const model::TemporaryFolder other;
  std::ofstream(other.path() + "/config.json") << R"({"model_type": "gpt2"})";
  EXPECT_THAT(user_error(run_stof({"tune", other.path()})),
              HasSubstr("got \"gpt2\"; such models are run, but neither tuned nor explained"));
  EXPECT_THAT(user_error(run_stof({"explain"})), HasSubstr("expected a model's folder"));
  EXPECT_THAT(user_error(run_stof({"cache", "export", folder_ / "none.jsonl"})),
              HasSubstr("no tuning records to export"));
}

TEST_F(TuneCommand, RunTunesWhatIsMissingOnce) {
  const model::TemporaryFolder checkpoint;
  model::TinyBert().write(checkpoint);
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run",     "a b c",           "d e",    "f g h i j",
                                          "--model", checkpoint.path(), "--json", "--device",
                                          "cpu",     "--threads",       "1",      "--timing"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_stof(arguments);
  };
  const Finished untuned = run({"--tune", "off"});
  ASSERT_EQ(untuned.exit_code, 0) << untuned.err;
  EXPECT_THAT(untuned.err, HasSubstr("weights loaded in "));
  EXPECT_THAT(untuned.err, HasSubstr(" s, first result "));
  const Finished first = run({"--tune", "on", "--tune-budget", "1m"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("tuned for 16 rows in "));
  EXPECT_THAT(run_stof({"cache", "verify"}).out, Not(HasSubstr("\n0 tuning records")));
  const Finished second = run({"--tune", "on", "--tune-budget", "1m"});
  EXPECT_THAT(second.err, Not(HasSubstr("tuned for")));
  EXPECT_EQ(second.exit_code, 0) << second.err;
  // Whatever runs them, the numbers are the same but for their last digits.
  std::istringstream a(untuned.out), b(second.out);
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);) {
    const std::vector<double> of_x = json::parse(x).at("embedding"),
                              of_y = json::parse(y).at("embedding");
    ASSERT_EQ(of_x.size(), of_y.size());
    for (std::size_t i = 0; i < of_x.size(); ++i) EXPECT_NEAR(of_x[i], of_y[i], 1e-4);
  }
  EXPECT_THAT(user_error(run({"--tune", "on", "--tune-budget", "later"})),
              HasSubstr("--tune-budget: expected a time as 30s or 2m, got \"later\""));
}

TEST_F(TuneCommand, FindsDamagedRecords) {
  const Finished tuned = run_on_model({"tune", folder_.path(), "--budget", "2s"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Finished finished =
      run_shell("bash",
                "f=$(ls $STOF_CACHE/tuning/*.json | head -1); sed -i 's/\"format\": 2/\"format\": "
                "3/' $f; \"$stof\" cache verify");
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("its checksum does not fit its content"));
}

}  // namespace
}  // namespace stof::cli
