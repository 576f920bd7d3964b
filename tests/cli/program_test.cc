// What holds for the program as a whole: help, versions, bad command lines, broken streams.

#include "cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace stof::cli {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<std::vector<std::string>> kCommands = {
    {},
    {"run"},
    {"mask"},
    {"mask", "show"},
    {"mask", "stats"},
    {"mask", "draw"},
    {"mask", "convert"},
    {"mask", "list"},
    {"bench"},
    {"tune"},
    {"explain"},
    {"explain", "attention"},
    {"doctor"},
    {"cache"},
    {"cache", "ls"},
    {"cache", "verify"},
    {"cache", "clear"},
    {"demo"},
    {"completion"},
};

TEST(Program, HelpOfEveryCommandShowsExamples) {
  for (std::vector<std::string> command : kCommands) {
    command.push_back("--help");
    const Finished finished = run_stof(command);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.out, HasSubstr("Examples:\n  "));
    EXPECT_EQ(finished.err, "");
  }
}

TEST(Program, VersionIsOneLine) {
  const Finished finished = run_stof({"--version"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.out, testing::MatchesRegex("stof [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(Program, RefusesUnknownOptionByName) {
  const std::string message = user_error(run_stof({"mask", "show", "causal", "--sequence", "4"}));
  EXPECT_THAT(message, HasSubstr("--sequence"));
  EXPECT_THAT(message, HasSubstr("stof mask show --help"));
}

TEST(Program, RefusesUnknownCommandByName) {
  EXPECT_EQ(user_error(run_stof({"frobnicate"})),
            "expected a command, one of run, mask, bench, tune, explain, calibrate, doctor, cache, "
            "simulate, demo, completion; got \"frobnicate\"; see stof --help");
}

TEST(Program, RefusesMissingCommand) {
  EXPECT_THAT(user_error(run_stof({})), HasSubstr("--help"));
  EXPECT_THAT(user_error(run_stof({"mask"})), HasSubstr("stof mask --help"));
}

TEST(Program, RefusesNumbersThatAreNot) {
  for (const char* number :
       {"0", "-3", "x", "1e3", "4.5", "", "2147483648", "99999999999999999999"})
    EXPECT_THAT(user_error(run_stof({"mask", "stats", "causal", "--seq", number})),
                StartsWith("--seq: expected a whole number from 1 to 2147483647, got \"" +
                           std::string(number) + "\""));
}

TEST(Program, ReadsNumbersAsDecimal) {
  const Finished finished = run_stof({"mask", "show", "causal", "--seq", "010", "--row", "9"});
  EXPECT_EQ(finished.out, "row 9 sees 10 of 10 keys: 0..9\n") << finished.err;
}

TEST(Program, RefusesUnknownChoiceListingAll) {
  EXPECT_THAT(user_error(run_stof({"mask", "stats", "causal", "--seq", "4", "--align", "middle"})),
              HasSubstr("--align: expected one of top_left|bottom_right, got \"middle\""));
}

TEST(Program, FailsWhenStandardOutputIsClosed) {
  Streams streams;
  streams.close_output = true;
  const Finished finished = run_stof({"mask", "list"}, streams);
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, StartsWith("stof: error: standard output: write failed"));
}

TEST(Program, FailsWhenTheDiskIsFull) {
  Streams streams;
  streams.output_file = "/dev/full";
  const Finished finished = run_stof({"mask", "list"}, streams);
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, StartsWith("stof: error: standard output: write failed"));
}

TEST(Program, KeepsItsExitCodeWhenStandardErrorIsClosed) {
  EXPECT_EQ(run_shell("bash", "\"$stof\" mask show causa --seq 8 2>&-").exit_code, 2);
}

TEST(Program, NamesFilesOnOneLineWhateverTheyContain) {
  EXPECT_EQ(user_error(run_stof({"mask", "show", "no\nsuch \x1b[31mfile.npy"})),
            "no\\x0asuch \\x1b[31mfile.npy: no such file; check the path");
}

TEST(Program, LeavesNothingBehindWhenTheSizeLimitIsHit) {
  const TemporaryFolder folder;
  const Finished finished = run_shell(
      "bash", "ulimit -f 1; \"$stof\" mask draw causal --seq 512 --out " + (folder / "out.png"));
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("out.png: write failed: File too large"));
  EXPECT_THAT(folder.names(), testing::IsEmpty());
}

TEST(Program, RefusesPipesAsInputAndOutput) {
  const TemporaryFolder folder;
  const Finished finished =
      run_shell("bash", "cd " + folder.path() +
                            "; mkfifo pipe.npy; \"$stof\" mask show pipe.npy; \"$stof\" mask draw "
                            "causal --seq 8 --out pipe.npy; \"$stof\" run --file pipe.npy");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_EQ(finished.err,
            "stof: error: pipe.npy: expected a file, got a pipe\n"
            "stof: error: --out: pipe.npy: expected the name of a file to write, got a pipe\n"
            "stof: error: pipe.npy: expected a file, got a pipe\n");
}

TEST(Program, DiesSilentlyWhenTheReaderLeaves) {
  Streams streams;
  streams.break_output = true;
  const Finished finished = run_stof({"mask", "list"}, streams);
  EXPECT_EQ(finished.signal_number, SIGPIPE);
  EXPECT_EQ(finished.err, "");
}

TEST(Completion, BashOffersSubcommandsOptionsAndValues) {
  const auto complete = [](const std::string& words, int index) {
    const Finished finished = run_shell(
        "bash", "source <($stof completion bash)\nCOMP_WORDS=(" + words +
                    ")\nCOMP_CWORD=" + std::to_string(index) + "\n_stof\necho \"${COMPREPLY[@]}\"");
    EXPECT_EQ(finished.err, "");
    return finished.out;
  };
  EXPECT_EQ(complete("stof m", 1), "mask\n");
  EXPECT_EQ(complete("stof mask st", 2), "stats\n");
  EXPECT_EQ(complete("stof mask stats --al", 3), "--align\n");
  EXPECT_EQ(complete("stof mask stats --align b", 4), "bottom_right\n");
  EXPECT_EQ(complete("stof -q run --task ''", 4),
            "embed tokens fill-mask classify perplexity translate summarise summarize\n");
  EXPECT_THAT(complete("stof run --qu", 2), HasSubstr("--quiet"));
}

TEST(Completion, NamesEveryCommandForEveryShell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Finished finished = run_stof({"completion", shell});
    EXPECT_EQ(finished.exit_code, 0);
    for (const auto& command : kCommands)
      for (const std::string& word : command) EXPECT_THAT(finished.out, HasSubstr(word)) << shell;
  }
  EXPECT_THAT(user_error(run_stof({"completion", "tcsh"})), HasSubstr("bash|zsh|fish"));
}

TEST(Doctor, PrintsWhatWasFound) {
  const Finished finished = run_stof({"doctor"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  for (const char* label :
       {"CPU", "features", "kernels", "threads", "memory", "GPU", "libraries", "cache", "model"})
    EXPECT_THAT(finished.out, ContainsRegex("(^|\n)" + std::string(label) + " +[^ ]"));
  EXPECT_THAT(finished.out, HasSubstr("oneDNN "));
}

TEST(Doctor, JsonHasTheSameFacts) {
  const auto json = nlohmann::json::parse(run_stof({"doctor", "--json"}).out);
  EXPECT_GT(json.at("cpu").at("memory_bytes").get<std::int64_t>(), 0);
  EXPECT_GE(json.at("cpu").at("num_threads").get<int>(), 1);
  EXPECT_THAT(json.at("cpu").at("kernel_level").get<std::string>(),
              testing::AnyOf("scalar", "avx2", "avx512"));
  // Either a device or the reason why there is none.
  EXPECT_NE(json.at("gpu").at("devices").empty(),
            json.at("gpu").at("problem").get<std::string>().empty());
  EXPECT_TRUE(json.at("libraries").contains("oneDNN"));
  EXPECT_TRUE(json.at("model").contains("ready"));
}

}  // namespace
}  // namespace stof::cli
