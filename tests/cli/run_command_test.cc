// stof run and stof demo on the real checkpoint (scripts/setup --models fetches it).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "cli/program.h"
#include "model/encoders_golden.h"
#include "model/vit_golden.h"
#include "stof/npy.h"

namespace stof::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<json> lines_of(const Finished& finished) {
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  std::vector<json> lines;
  std::istringstream text(finished.out);
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Run, PrintsTokensNormAndSimilarity) {
  const Finished finished =
      run_stof({"run", "A cat sleeps.", "A kitten naps.", "Stock prices fell."});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  EXPECT_THAT(finished.out, HasSubstr("1  A cat sleeps."));
  EXPECT_THAT(finished.out, HasSubstr("1.0000"));
  EXPECT_THAT(finished.out, HasSubstr("cosine similarity"));
}

TEST(Run, SimilarTextsAreCloserThanOthers) {
  const auto lines = lines_of(
      run_stof({"run", "A cat sleeps.", "A kitten naps.", "Stock prices fell.", "--json"}));
  ASSERT_EQ(lines.size(), 3u);
  std::vector<std::vector<float>> vectors;
  for (const json& line : lines) vectors.push_back(line.at("embedding"));
  ASSERT_EQ(vectors[0].size(), 384u);
  for (const auto& vector : vectors) EXPECT_NEAR(dot(vector, vector), 1, 1e-5);
  EXPECT_GT(dot(vectors[0], vectors[1]), dot(vectors[0], vectors[2]) + 0.2);
}

TEST(Run, SaysHowWellADecoderExpectsTexts) {
  const std::string path = testing::TempDir() + "/log_likelihoods.npy";
  const auto lines = lines_of(run_stof({"-q", "run", "--task", "perplexity", "A cat sat on a mat.",
                                        "Mat a on sat cat a.", "--json", "--output", path}));
  ASSERT_EQ(lines.size(), 2u);
  const Tensor each = load_npy(path);
  const auto first = each.as<float>().subspan(1, lines[0].at("num_scored").get<std::size_t>());
  EXPECT_TRUE(std::isnan(each.as<float>()[0]) && std::isnan(each.as<float>()[first.size() + 1]));
  EXPECT_NEAR(std::accumulate(first.begin(), first.end(), 0.0),
              lines[0].at("log_likelihood").get<double>(), 1e-3);
  EXPECT_EQ(lines[0].at("num_scored").get<int>() + 1, lines[0].at("num_tokens").get<int>());
  EXPECT_LT(3 * lines[0].at("perplexity").get<double>(), lines[1].at("perplexity").get<double>());
  EXPECT_THAT(run_stof({"run", "a", "--stride", "4"}).err, HasSubstr("--task perplexity"));
  EXPECT_THAT(run_stof({"run", "--task", "perplexity", "a", "--batch", "2"}).err,
              HasSubstr("--batch: expected none beside --task perplexity"));
  EXPECT_THAT(run_stof({"run", "--task", "perplexity"}).err, HasSubstr("TEXT"));
  EXPECT_THAT(run_stof({"run", "--prompt", "a", "--prompt-file", "b"}).err,
              HasSubstr("--prompt-file: expected none beside --prompt"));
  EXPECT_THAT(run_stof({"run", "--prompt-file", "no-such-file"}).err, HasSubstr("no-such-file"));
}

TEST(Run, TakesMasksOfLayersAndHeadsFromAFile) {
  const std::string path = testing::TempDir() + "/layer_masks.json";
  const auto embedding = [&](const std::string& mask) -> std::vector<float> {
    return lines_of(run_stof({"run", "A cat sleeps.", "--mask", mask, "--json"}))
        .at(0)
        .at("embedding");
  };
  std::ofstream(path) << R"J({"rules": [{"layers": "0-5", "mask": "window(1, 1)"}]})J";
  EXPECT_EQ(embedding(path), embedding("window(1, 1)"));
  std::ofstream(path) << R"J({"rules": [{"layers": 3, "heads": 2, "mask": "window(1, 1)"}]})J";
  const auto one_head = embedding(path), dense = embedding("all");
  EXPECT_LT(dot(one_head, dense), 0.99999);
  EXPECT_GT(dot(one_head, dense), 0.9);
  EXPECT_EQ(
      run_stof({"mask", "show", path, "--layer", "3", "--heads", "12", "--seq", "8"}).exit_code, 0);
  EXPECT_THAT(run_stof({"mask", "show", path, "--seq", "8"}).err, HasSubstr("--layer"));
  std::ofstream(path) << R"J({"rules": [{"layers": 6, "mask": "all"}]})J";
  const Finished finished = run_stof({"run", "A cat sleeps.", "--mask", path});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, HasSubstr(path + ": rules[0].layers: expected layers below 6"));
}

TEST(Run, ReadsOneTextPerLine) {
  const TemporaryFolder folder;
  const std::string text = "first line\r\nzweite Zeile mit \xC3\xA4\n\nlast without newline";
  std::ofstream(folder / "texts.txt") << text;
  const auto from_file = lines_of(run_stof({"run", "--file", folder / "texts.txt", "--json"}));
  const auto from_input = lines_of(run_stof({"run", "--file", "-", "--json"}, {.input = text}));
  ASSERT_EQ(from_file.size(), 4u);
  EXPECT_EQ(from_file[0].at("text"), "first line");
  EXPECT_EQ(from_file[2].at("text"), "");
  EXPECT_EQ(from_file, from_input);
}

TEST(Run, TakesCommandNamesAsText) {
  const auto lines = lines_of(run_stof({"run", "mask", "doctor", "run", "--json"}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("text"), "mask");
  EXPECT_EQ(lines[2].at("text"), "run");
}

TEST(Run, TakesTextsThatBeginWithADash) {
  const auto lines = lines_of(run_stof({"run", "--json", "--", "-5 degrees", "--help"}));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("text"), "--help");
}

TEST(Run, RefusesEmptyValuesOfOptions) {  // what an unset variable of a script leaves
  for (const char* option : {"--prune", "--output", "--file", "--mask"}) {
    const auto finished = run_stof({"run", "a", option, ""});
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_THAT(finished.err, HasSubstr(std::string(option) + ": expected a value, got \"\""));
  }
}

TEST(Run, TokensTaskGivesOneVectorPerToken) {
  const auto lines = lines_of(run_stof({"run", "hello world", "--task", "tokens", "--json"}));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("tokens"), json({"[CLS]", "hello", "world", "[SEP]"}));
  EXPECT_EQ(lines[0].at("ids"), json({101, 7592, 2088, 102}));
  ASSERT_EQ(lines[0].at("embeddings").size(), 4u);
  EXPECT_EQ(lines[0].at("embeddings")[3].size(), 384u);
}

TEST(Run, MaskChangesTheResultAndAllDoesNot) {
  const std::string text = "the quick brown fox jumps over the lazy dog near the river bank";
  const auto embed = [&text](const std::string& mask) {
    return lines_of(run_stof({"run", text, "--mask", mask, "--json"}))
        .at(0)
        .at("embedding")
        .get<std::vector<float>>();
  };
  const auto dense = embed("all");
  EXPECT_GT(dot(dense, embed("window(100,100)")), 0.999999);
  EXPECT_LT(dot(dense, embed("window(1,1)")), 0.999);
}

TEST(Run, FillsMasksOfEveryFamily) {
  const model::EncodersGolden golden;
  for (const std::string name : {"bert", "roberta", "distilbert", "modernbert"}) {
    const model::TemporaryFolder folder;
    golden.write(folder, golden.at(name));
    const std::string text = golden.tokenizer(golden.at(name)).at("text");
    const std::vector<std::string> command = {"run",       "--model",   folder.path(), "--task",
                                              "fill-mask", "--threads", "1",           text};
    auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), command.begin(), command.end());
      return run_stof(more);
    };
    const auto lines = lines_of(with({"--top-k", "3", "--json"}));
    ASSERT_EQ(lines.size(), 1u);
    const TensorView logits = golden.expected("logits", golden.at(name));
    ASSERT_EQ(static_cast<std::int64_t>(lines[0].at("masks").size()), logits.shape[0]);
    const auto* scores = static_cast<const float*>(logits.data);
    const json& mask = lines[0].at("masks")[0];
    EXPECT_EQ(mask.at("candidates").size(), 3u);
    EXPECT_EQ(mask.at("candidates")[0].at("id"),
              std::max_element(scores, scores + logits.shape[1]) - scores);
    EXPECT_THAT(with({}).out, AllOf(HasSubstr("probability"), HasSubstr("  token ")));
    EXPECT_THAT(with({"--output", "e.npy"}).err, HasSubstr("--output"));
  }
  EXPECT_THAT(run_stof({"run", "a [MASK]", "--task", "fill-mask"}).err,
              HasSubstr("cls.predictions.transform.dense.weight"));
  EXPECT_THAT(run_stof({"run", "text", "--top-k", "3"}).err, HasSubstr("--task fill-mask"));
}

TEST(Run, ClassifiesImages) {
  const model::VitGolden golden;
  const model::TemporaryFolder folder;
  golden.write(folder, golden.at("base"));
  const std::string image = golden.image("vit_rgb.png");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"run", "--task", "classify", "--threads", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return run_stof(command);
  };
  const auto lines = lines_of(run({"--model", folder.path(), image, image, "--json"}));
  ASSERT_EQ(lines.size(), 2u);
  const auto* logits = static_cast<const float*>(golden.tensor("logits.base").data);
  const json& best = lines[1].at("labels")[0];
  EXPECT_EQ(best.at("id"), std::max_element(logits, logits + 4) - logits);
  EXPECT_EQ(
      best.at("label"),
      golden.at("base").at("config").at("id2label").at(std::to_string(best.at("id").get<int>())));
  EXPECT_THAT(run({"--model", folder.path(), "--top-k", "1", image}).out,
              AllOf(HasSubstr("vit_rgb.png"), HasSubstr("probability")));
  EXPECT_THAT(run({image}).err, HasSubstr("--model"));
  EXPECT_THAT(run({"--model", folder.path()}).err, HasSubstr("at least one image"));
  EXPECT_THAT(run({"--model", folder.path(), image, "--device", "cuda"}).err, HasSubstr("CPU"));
  EXPECT_THAT(run({"--model", folder.path(), image, "--file", "x"}).err, HasSubstr("--file"));
}

TEST(Run, PrunesAndSaysHowMuchItKept) {
  const TemporaryFolder folder;
  const std::string text = "the quick brown fox jumps over the lazy dog near the river bank";
  const auto embed = [&](const std::string& pruner) {
    const Finished finished = run_stof({"run", text, "--prune", pruner, "--json"});
    EXPECT_THAT(finished.err, HasSubstr("pruned 6 times by " + pruner));
    return lines_of(finished).at(0).at("embedding").get<std::vector<float>>();
  };
  const auto whole = embed("nm(4, 4)"), half = embed("nm(2, 4)"), least = embed("nm(1, 8)");
  EXPECT_GT(dot(whole, half), dot(whole, least));
  EXPECT_LT(dot(whole, least), 0.999);
  // What each layer chose, for the simulator.
  const Finished kept =
      run_stof({"run", text, "--prune", "nm(2,4)", "--prune-masks", folder / "."});
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  const Finished simulated = run_stof({"simulate", "--model", "minilm", "--seq", "15", "--pattern",
                                       folder / "00005.safetensors", "--json"});
  EXPECT_NEAR(lines_of(simulated).at(0).at("kept_fraction").get<double>(), 0.53, 0.01);
  EXPECT_THAT(user_error(run_stof({"run", "x", "--prune-masks", folder / "."})),
              HasSubstr("--prune-masks: expected --prune"));
  EXPECT_THAT(run_stof({"run", "x", "--prune", "nm(2)"}).err, HasSubstr("^"));
}

TEST(Run, WritesNpy) {
  const TemporaryFolder folder;
  const Finished finished =
      run_stof({"run", "one", "two words", "--output", folder / "e.npy", "--json"});
  const auto lines = lines_of(finished);
  const Tensor embeddings = load_npy(folder / "e.npy");
  EXPECT_EQ(embeddings.shape(), (Dims{2, 384}));
  const auto row = lines.at(1).at("embedding").get<std::vector<float>>();
  for (std::size_t i = 0; i < row.size(); ++i)
    EXPECT_EQ(embeddings.as<float>()[384 + i], row[i]) << i;
  const auto tokens = lines_of(run_stof(
      {"run", "one", "two words", "--task", "tokens", "--output", folder / "t.npy", "--json"}));
  EXPECT_EQ(load_npy(folder / "t.npy").shape(), (Dims{7, 384}));
}

TEST(Run, CutsAtMaxTokensAndSaysSo) {
  const Finished finished = run_stof({"run", "one two three four five six", "--max-tokens", "5"});
  EXPECT_THAT(finished.out, HasSubstr("5 (cut)")) << finished.err;
  EXPECT_THAT(user_error(run_stof({"run", "x", "--max-tokens", "100000"})),
              HasSubstr("max_tokens: expected"));
}

TEST(Run, SaysWhatAGpuNeedsWhereThereIsNone) {
  EXPECT_THAT(user_error(run_stof({"run", "x", "--device", "cuda"})), HasSubstr("NVIDIA driver"));
  // A 16-bit type is only to be had on a GPU.
  EXPECT_THAT(user_error(run_stof({"run", "x", "--dtype", "bf16"})), HasSubstr("NVIDIA driver"));
}

TEST(Run, RefusesTypesThatTheDeviceDoesNotHave) {
  EXPECT_EQ(user_error(run_stof({"run", "x", "--device", "cpu", "--dtype", "fp16"})),
            "--dtype: on the CPU models compute in fp32, got fp16");
  EXPECT_EQ(user_error(run_stof({"run", "x", "--device", "cuda", "--dtype", "fp32"})),
            "--dtype: on a GPU models compute in fp16 or bf16, got fp32");
  EXPECT_THAT(user_error(run_stof({"run", "x", "--dtype", "int8"})), HasSubstr("auto|fp32"));
}

TEST(Run, RefusesMissingAndBrokenText) {
  EXPECT_THAT(user_error(run_stof({"run"})), StartsWith("TEXT: expected at least one text"));
  EXPECT_THAT(user_error(run_stof({"run", "--file", "-"})),
              StartsWith("standard input: expected at least one line"));
  EXPECT_THAT(user_error(run_stof({"run", "--file", "missing.txt"})), StartsWith("missing.txt:"));
  EXPECT_THAT(user_error(run_stof({"run", "x", "--file", "y.txt"})), StartsWith("--file:"));
  const std::string message =
      user_error(run_stof({"run", "--file", "-"}, {.input = "good\nbad \xFF byte\n"}));
  EXPECT_THAT(message, StartsWith("standard input, line 2"));
  EXPECT_THAT(message, HasSubstr("UTF-8"));
}

TEST(Run, RefusesAMissingModelWithAdvice) {
  EXPECT_THAT(user_error(run_stof({"run", "x", "--model", "no-such-folder"})),
              StartsWith("--model: no-such-folder: no such folder"));
  const Finished finished = run_shell("sh", "STOF_CACHE=/nonexistent $stof run x");
  EXPECT_THAT(user_error(finished), HasSubstr("run scripts/setup --models"));
}

TEST(Run, RefusesAnUnwritableOutputBeforeLoadingTheModel) {
  EXPECT_THAT(user_error(run_stof(
                  {"run", "x", "--model", "no-such-folder", "--output", "no-such-place/e.npy"})),
              StartsWith("--output: no-such-place/e.npy: no such folder"));
}

TEST(Run, ShowsTheMaskErrorUnderTheLine) {
  const Finished finished = run_stof({"run", "x", "--mask", "causal & ("});
  EXPECT_NE(user_error(finished), "");
  EXPECT_THAT(finished.err, HasSubstr("^"));
}

TEST(Run, ShowsNoBarWhereNobodyWatches) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "sentence number " + std::to_string(i) + "\n";
  EXPECT_EQ(run_stof({"run", "--file", "-", "--json", "--batch", "1"}, {.input = many}).err, "");
  EXPECT_EQ(run_stof({"run", "x", "--quiet"}, {.terminal_error = true}).err, "");
}

TEST(Run, ContinuesAPromptAndSaysHowFast) {
  const Finished finished =
      run_stof({"run", "--prompt", "The capital of France is", "--max-tokens", "3"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.out, " Paris.\n\n");
  EXPECT_THAT(finished.err,
              AllOf(StartsWith("stof: read 5 tokens in "), HasSubstr("wrote 3 tokens"),
                    HasSubstr("tokens/s), ended by token limit")));
}

TEST(Run, HonoursEveryOptionOfGeneration) {
  const auto lines = lines_of(
      run_shell("sh",
                "$stof run --prompt 'The capital of France is' --max-tokens 9 --temperature 0.01 "
                "--top-k 5 --top-p 0.9 --seed 7 --stop 'nothing such' --stop '\n\n' "
                "--mask 'sink(1) | window(20, 0)' --threads 1 --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("text"), " Paris.");
  EXPECT_EQ(lines[0].at("stopped_by"), "stop string");
  EXPECT_EQ(lines[0].at("prompt_tokens"), 5);
}

TEST(Run, RefusesOptionsThatGenerationHasNot) {
  const auto refusal = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "--prompt", "x"});
    return user_error(run_stof(more));
  };
  EXPECT_THAT(refusal({"a text"}), StartsWith("TEXT: expected none beside --prompt"));
  EXPECT_THAT(refusal({"--batch", "2"}), StartsWith("--batch: expected none"));
  EXPECT_THAT(refusal({"--tune", "off"}), StartsWith("--tune: expected none"));
  EXPECT_THAT(refusal({"--device", "cpu", "--dtype", "fp16"}), StartsWith("--dtype"));
  EXPECT_THAT(refusal({"--model", "no-such.gguf"}), StartsWith("--model: no-such.gguf"));
  EXPECT_THAT(user_error(run_stof({"run", "x", "--top-k", "3"})), StartsWith("--top-k"));
  EXPECT_THAT(user_error(run_stof({"run", "x", "--chat"})), StartsWith("--chat"));
  const Finished finished = run_shell("sh", "STOF_CACHE=/nonexistent $stof run --prompt x");
  EXPECT_THAT(user_error(finished), HasSubstr("run scripts/setup --models"));
}

TEST(Demo, ShowsSentencesMasksAndPictures) {
  const TemporaryFolder folder;
  const Finished finished = run_stof({"demo", "--document", STOF_SOURCE_DIR "/LICENSE",
                                      "--read-tokens", "300", "--out", folder / "pictures"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  for (const char* expected :
       {"1. Sentences", "2. A long document", "3. A question", "llama: 30 layers", "4. Pictures",
        "Try next", "cosine to dense", "1.0000"})
    EXPECT_THAT(finished.out, HasSubstr(expected));
  for (const char* name : {"dense.png", "sliding.png", "bigbird.png"})
    EXPECT_THAT(read_file(folder / ("pictures/" + std::string(name))), StartsWith("\x89PNG"));
}

TEST(Demo, NamesAMissingDocument) {
  const TemporaryFolder folder;
  const Finished finished =
      run_stof({"demo", "--document", "no-such-text", "--out", folder / "pictures"});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, StartsWith("stof: error: --document: no-such-text"));
}

TEST(Bench, JsonLinesNameTheirCase) {
  for (const json& line : lines_of(run_stof({"bench", "mask", "--seq", "512", "--json"}))) {
    EXPECT_EQ(line.at("suite"), "mask");
    EXPECT_GT(line.at("median_seconds").get<double>(), 0);
    EXPECT_GE(line.at("repeats").get<int>(), 3);
  }
}

TEST(Bench, RefusesOptionsOfOtherSuites) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const Finished finished = run_stof(arguments);
    EXPECT_EQ(finished.exit_code, 2);
    return finished.err;
  };
  EXPECT_THAT(refusal({"bench", "attention", "--device", "cuda"}),
              HasSubstr("--device: expected none with the attention suite"));
  EXPECT_THAT(refusal({"bench", "model", "--seq", "8"}),
              HasSubstr("--seq: expected none with the model suite"));
  EXPECT_THAT(refusal({"bench", "model", "--device", "cpu", "--dtype", "fp16"}),
              HasSubstr("--dtype: on the CPU models compute in fp32"));
  // Decoders are told by their configuration, and loaded as such.
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2"})";
  EXPECT_THAT(refusal({"bench", "model", "--model", folder / "", "--device", "cpu"}),
              AllOf(HasSubstr(folder / ""), Not(HasSubstr("roberta"))));
}

}  // namespace
}  // namespace stof::cli
