// Sampling, stop strings, and generation with small checkpoints and with SmolLM2.

#include "stof/text_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "model/chat_template.h"
#include "model/sampler.h"
#include "model/stop_strings.h"
#include "model/tiny_llama.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}

/// How often each id is drawn from the logits.
std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  Sampler sampler(options);
  std::vector<double> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sampler.next(logits))];
  for (double& count : counts) count /= kDraws;
  return counts;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(actual[i], 0);
    }
    EXPECT_NEAR(actual[i], expected[i], 0.015) << i;  // four standard deviations
  }
}

float log_of(double x) { return static_cast<float>(std::log(x)); }

TEST(Sampler, DrawsByTemperatureTopKAndTopP) {
  // Probabilities 0.1, 0.4, 0.2, 0.3, shifted by a constant that must not matter.
  const std::vector<float> logits = {log_of(0.1) + 50, log_of(0.4) + 50, log_of(0.2) + 50,
                                     log_of(0.3) + 50};
  expect_near(frequencies(logits, {1, 0, 1, 1}), {0.1, 0.4, 0.2, 0.3});
  expect_near(frequencies(logits, {0.5, 0, 1, 2}), {1 / 30.0, 16 / 30.0, 4 / 30.0, 9 / 30.0});
  expect_near(frequencies(logits, {1, 2, 1, 3}), {0, 4 / 7.0, 0, 3 / 7.0});
  expect_near(frequencies(logits, {1, 0, 0.69, 4}), {0, 4 / 7.0, 0, 3 / 7.0});
  expect_near(frequencies(logits, {1, 0, 0.71, 5}), {0, 4 / 9.0, 2 / 9.0, 3 / 9.0});
  expect_near(frequencies(logits, {1, 0, 1e-9, 6}), {0, 1, 0, 0});
  expect_near(frequencies(logits, {1, 100, 1, 7}), {0.1, 0.4, 0.2, 0.3});
  // top_p is of what top_k leaves: 0.4 and 0.3 of 0.7.
  expect_near(frequencies(logits, {1, 2, 0.5, 8}), {0, 1, 0, 0});
}

TEST(Sampler, TakesTheFirstOfEqualLogitsWithoutTemperature) {
  EXPECT_EQ(Sampler({}).next(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(Sampler({1, 1, 1, 9}).next(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(Sampler({1, 0, 1, 9}).next(std::vector<float>{-INFINITY, 3, -INFINITY}), 1);
}

TEST(Sampler, RepeatsItselfBySeed) {
  const std::vector<float> logits(64, 0);
  const auto draws = [&](std::uint64_t seed) {
    Sampler sampler({1, 0, 1, seed});
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.next(logits));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

TEST(Sampler, RefusesOptionsAndLogitsThatMakeNoSense) {
  EXPECT_THAT(error_of([] { Sampler({-1, 0, 1, 0}); }), HasSubstr("temperature"));
  EXPECT_THAT(error_of([] { Sampler({NAN, 0, 1, 0}); }), HasSubstr("temperature"));
  EXPECT_THAT(error_of([] { Sampler({1, -1, 1, 0}); }), HasSubstr("top_k"));
  EXPECT_THAT(error_of([] { Sampler({1, 0, 0, 0}); }), HasSubstr("top_p"));
  EXPECT_THAT(error_of([] { Sampler({1, 0, 1.5, 0}); }), HasSubstr("top_p"));
  for (const std::vector<float>& bad : {std::vector<float>{}, {1, NAN}, {INFINITY}, {-INFINITY}})
    EXPECT_THAT(error_of([&] { Sampler({}).next(bad); }), HasSubstr("InvalidArgument: logits"));
}

TEST(StopStrings, EndTheTextWhereverItIsCut) {
  struct Case {
    std::string text, expected;
    bool stopped;
  };
  for (const Case& c : std::vector<Case>{{"abcENDdef", "abc", true},
                                         {"abENENDx", "abEN", true},
                                         {"a##b", "a", true},
                                         {"EN", "EN", false},
                                         {"xE#", "xE#", false},
                                         {"#END##", "#", true},
                                         {"", "", false}}) {
    for (std::size_t step = 1; step <= c.text.size() + 1; ++step) {
      StopStrings stop({"END", "##"});
      std::string out;
      for (std::size_t at = 0; at < c.text.size(); at += step)
        out += stop.push(c.text.substr(at, step));
      EXPECT_EQ(stop.stopped(), c.stopped);
      EXPECT_EQ(out + stop.finish(), c.expected) << c.text << step;
    }
  }
  EXPECT_THAT(error_of([] { StopStrings({""}); }), HasSubstr("stop"));
}

TextGenerator tiny(const char* name = "base") {
  static const LlamaGolden golden;
  const TemporaryFolder folder;
  nlohmann::json config = golden.at(name).at("config");
  config["eos_token_id"] = 49;
  golden.write(folder, golden.at(name), config, golden.weights(golden.at(name)));
  return TextGenerator::load(folder.path());
}

/// A team costs more than it gains on a small model.
/// The likeliest token after each prefix, every time from the start.
std::vector<std::int32_t> greedy(const TextGenerator& model, std::vector<std::int32_t> ids,
                                 int count) {
  const std::size_t prompt = ids.size();
  for (int i = 0; i < count; ++i) {
    const Tensor logits = model.logits(ids, one_thread());
    const auto last = logits.as<float>().last(static_cast<std::size_t>(model.vocab_size()));
    ids.push_back(
        static_cast<std::int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
    if (ids.back() == 49) break;
  }
  return {ids.begin() + static_cast<long>(prompt), ids.end()};
}

TEST(TextGenerator, WritesTheLikeliestTokensWithOrWithoutACache) {
  for (const char* name : {"base", "mistral", "qwen2 window"}) {
    const TextGenerator model = tiny(name);
    GenerateOptions options = one_thread();
    options.max_tokens = 30;
    options.prefill_chunk = 4;
    std::string streamed;
    options.on_text = [&](std::string_view text) { streamed += text; };
    const GeneratedText result = model.generate("hello world", options);
    EXPECT_EQ(result.ids, greedy(model, model.tokenize("hello world"), 30)) << name;
    EXPECT_EQ(result.text, model.detokenize(result.ids));
    EXPECT_EQ(result.text, streamed);
    EXPECT_EQ(result.prompt_tokens, 11);
  }
}

TEST(TextGenerator, WritesSeveralTextsAtOnceAsItDoesEachAlone) {
  const TextGenerator model = tiny("qwen2 window");
  GenerateOptions options = one_thread();
  options.max_tokens = 25;
  options.prefill_chunk = 7;
  for (const double temperature : {0.0, 1.2}) {
    options.temperature = temperature;
    options.seed = 5;
    const std::vector<std::string> prompts = {"hello world", "a", "several words of a text", "xy"};
    const std::vector<GeneratedText> together = model.generate_all(prompts, options);
    ASSERT_EQ(together.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const GeneratedText alone = model.generate(prompts[i], options);
      EXPECT_EQ(together[i].ids, alone.ids) << prompts[i];
      EXPECT_EQ(together[i].text, alone.text);
      EXPECT_EQ(together[i].reason, alone.reason);
      EXPECT_EQ(together[i].prompt_tokens, alone.prompt_tokens);
    }
  }
  EXPECT_TRUE(model.generate_all({}, options).empty());
  EXPECT_THAT(error_of([&] {
                model.generate_all({"a", ""}, options);
              }),
              AllOf(HasSubstr("prompt 1"), HasSubstr("none")));
  options.on_text = [](std::string_view) {};
  EXPECT_THAT(error_of([&] { model.generate_all({"a", "b"}, options); }), HasSubstr("on_text"));
}

/// As transformers' documentation computes perplexity, from the logits of each window.
TEST(TextGenerator, ScoresTextsByWindows) {
  const TextGenerator model = tiny("qwen2 window");
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 53; ++i) ids.push_back((i * i * 7 + 3 * i) % 48);
  struct Case {
    std::int64_t window, stride, chunk;
  };
  for (const auto& [window, stride, chunk] :
       std::vector<Case>{{0, 0, 256}, {53, 0, 7}, {20, 0, 6}, {20, 8, 5}, {20, 1, 20}, {2, 2, 1}}) {
    ScoreOptions options;
    options.num_threads = 1;
    options.mask = mask::window(9, 0) | mask::sink(2);
    options.window = window;
    options.stride = stride;
    options.chunk = chunk;
    const TextScore score = model.score(ids, options);
    GenerateOptions plain = one_thread();
    plain.mask = options.mask;
    const auto all = static_cast<std::int64_t>(ids.size());
    const std::int64_t length = window > 0 ? window : all, step = stride > 0 ? stride : length;
    double sum = 0;
    std::int64_t count = 0;
    std::int64_t before = 0;
    ASSERT_EQ(score.log_likelihoods.size(), ids.size());
    std::vector<float> expected(ids.size(), NAN);
    for (std::int64_t begin = 0; before < all; begin += step) {
      const std::int64_t end = std::min(begin + length, all);
      const Tensor logits = model.logits({ids.begin() + begin, ids.begin() + end}, plain);
      for (std::int64_t i = std::max(before, begin + 1); i < end; ++i) {
        const auto row =
            logits.as<float>().subspan(static_cast<std::size_t>(i - begin - 1) * 50, 50);
        double total = 0;
        for (const float logit : row) total += std::exp(static_cast<double>(logit));
        const auto at = static_cast<std::size_t>(i);
        const double value = row[static_cast<std::size_t>(ids[at])] - std::log(total);
        expected[at] = static_cast<float>(value);
        sum += value;
        ++count;
      }
      before = end;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(std::isnan(score.log_likelihoods[i]), std::isnan(expected[i])) << i;
      if (std::isnan(expected[i])) continue;
      EXPECT_NEAR(score.log_likelihoods[i], expected[i], 2e-4) << i;
    }
    EXPECT_EQ(score.num_scored, count);
    EXPECT_NEAR(score.perplexity(), std::exp(-sum / static_cast<double>(count)), 1e-3);
  }
  EXPECT_EQ(model.score({}).num_scored, 0);
  EXPECT_TRUE(std::isnan(model.score({5}).perplexity()));
  const auto refusal = [&](auto change) {
    ScoreOptions options;
    change(options);
    return error_of([&] { model.score(ids, options); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.window = 1; }), HasSubstr("window: expected"));
  EXPECT_THAT(refusal([](auto& o) { o.window = 1 << 20; }), HasSubstr("window: expected"));
  EXPECT_THAT(refusal([](auto& o) { o.window = 9, o.stride = 10; }), HasSubstr("stride: expected"));
  EXPECT_THAT(refusal([](auto& o) { o.chunk = 0; }), HasSubstr("chunk"));
  EXPECT_THAT(refusal([](auto& o) { o.num_threads = -1; }), HasSubstr("num_threads"));
  EXPECT_THAT(refusal([](auto& o) { o.num_threads = 1000000; }), HasSubstr("to 1024"));
  ids[7] = 50;
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("token 7: expected an id below 50"));
}

TEST(TextGenerator, EndsWhereItIsTold) {
  const TextGenerator model = tiny();
  GenerateOptions options = one_thread();
  options.temperature = 1.5;
  options.seed = 3;
  options.max_tokens = 12;
  const GeneratedText whole = model.generate("abc", options);
  EXPECT_EQ(whole.ids, model.generate("abc", options).ids);
  ASSERT_EQ(whole.reason, StopReason::kMaxTokens);
  ASSERT_GE(whole.text.size(), 8u);
  options.stop = {whole.text.substr(4, 3)};
  const GeneratedText stopped = model.generate("abc", options);
  EXPECT_EQ(stopped.reason, StopReason::kStopString);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(options.stop[0])));
  options.stop.clear();
  options.seed = 4;
  EXPECT_NE(model.generate("abc", options).ids, whole.ids);
}

TEST(TextGenerator, EndsAtAnEndTokenAndAtTheLastPosition) {
  const TextGenerator model = tiny();
  bool ended = false, ran_out = false;
  GenerateOptions options = one_thread();
  options.temperature = 2;
  options.max_tokens = 1000;
  for (options.seed = 0; options.seed < 40; ++options.seed) {
    const GeneratedText result = model.generate("abc", options);
    const bool end_token = result.ids.back() == 49;
    EXPECT_EQ(result.reason, end_token ? StopReason::kEndToken : StopReason::kPositions);
    if (!end_token) {
      EXPECT_EQ(result.ids.size(), 64u - 3 + 1);
    }
    EXPECT_EQ(result.text.find("</s>"), std::string::npos);
    (end_token ? ended : ran_out) = true;
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(ran_out);
}

TEST(TextGenerator, RefusesPromptsAndOptionsThatCannotWork) {
  const TextGenerator model = tiny();
  const auto refusal = [&](const std::string& prompt,
                           const std::function<void(GenerateOptions&)>& change) {
    GenerateOptions options = one_thread();
    options.max_tokens = 1;
    change(options);
    return error_of([&] { model.generate(prompt, options); });
  };
  const auto keep = [](GenerateOptions&) {};
  EXPECT_THAT(refusal("", keep), AllOf(HasSubstr("InvalidArgument: prompt"), HasSubstr("none")));
  EXPECT_THAT(refusal(std::string(65, 'a'), keep),
              AllOf(HasSubstr("prompt"), HasSubstr("64"), HasSubstr("got 65")));
  EXPECT_EQ(refusal(std::string(64, 'a'), keep), "nothing was thrown");
  EXPECT_EQ(refusal("a", keep), "nothing was thrown");
  EXPECT_THAT(refusal("a\xFF", keep), HasSubstr("byte 1"));
  EXPECT_THAT(refusal("a", [](auto& o) { o.max_tokens = 0; }), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal("a", [](auto& o) { o.prefill_chunk = 0; }), HasSubstr("prefill_chunk"));
  EXPECT_THAT(refusal("a", [](auto& o) { o.num_threads = -1; }), HasSubstr("num_threads"));
  EXPECT_THAT(refusal("a", [](auto& o) { o.temperature = -1; }), HasSubstr("temperature"));
  EXPECT_THAT(refusal("a", [](auto& o) { o.stop = {""}; }), HasSubstr("stop"));
  EXPECT_THAT(refusal("a",
                      [](auto& o) {
                        o.mask = mask::key_lengths({1, 2});
                      }),
              HasSubstr("batch"));
  EXPECT_THAT(error_of([&] {
                model.logits({1, 50});
              }),
              AllOf(HasSubstr("token 1"), HasSubstr("got 50")));
  EXPECT_THAT(error_of([&] { model.logits({-1}); }), HasSubstr("token 0"));
}

TEST(TextGenerator, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { TextGenerator::load(folder.path()); }),
              AllOf(HasSubstr("NotFound"), HasSubstr("config.json"), HasSubstr(".gguf")));
  folder.write("a.gguf", "");
  EXPECT_THAT(error_of([&] { TextGenerator::load(folder.path()); }),
              AllOf(HasSubstr("Corrupt"), HasSubstr("a.gguf")));
  folder.write("b.gguf", "");
  EXPECT_THAT(error_of([&] { TextGenerator::load(folder.path()); }), HasSubstr("got 2"));
  EXPECT_THAT(error_of([&] { TextGenerator::load(folder.path() + "/none"); }),
              HasSubstr("NotFound"));
}

TEST(ChatTemplate, WritesConversationsAsTransformersDoes) {
  const nlohmann::json golden = read_golden_json("chat_golden.json");
  EXPECT_EQ(golden.size(), 2u);
  for (const auto& family : golden)
    for (const auto& entry : family.at("cases")) {
      std::vector<ChatMessage> messages;
      for (const auto& message : entry.at("messages"))
        messages.push_back({message.at("role"), message.at("content")});
      EXPECT_EQ(render_chat(family.at("template"), messages, "x"), entry.at("prompt"));
    }
  const std::string known = golden[0].at("template");
  EXPECT_THAT(error_of([&] {
                render_chat(known + " ", {{"user", "a"}}, "x");
              }),
              AllOf(HasSubstr("Unsupported: x: chat template"), HasSubstr("ChatML")));
  EXPECT_THAT(error_of([&] { render_chat("", {{"user", "a"}}, "x"); }), HasSubstr("got none"));
  EXPECT_THAT(error_of([&] { render_chat(known, {}, "x"); }), HasSubstr("messages"));
  EXPECT_THAT(error_of([&] { render_chat(known, {{"tool", "a"}}, "x"); }), HasSubstr("\"tool\""));
}

TEST(ChatTemplate, IsReadFromTheFolder) {
  const LlamaGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("base"), {}, golden.weights(golden.at("base")));
  const auto prompt = [&] {
    return TextGenerator::load(folder.path()).chat_prompt({{"user", "a"}});
  };
  EXPECT_THAT(error_of(prompt), HasSubstr("got none"));
  const nlohmann::json chat = read_golden_json("chat_golden.json")[0];
  const std::string expected = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  folder.write("tokenizer_config.json",
               nlohmann::json{{"chat_template", chat.at("template")}}.dump());
  EXPECT_EQ(prompt(), expected);
  folder.write("tokenizer_config.json", "{}");
  folder.write("chat_template.jinja", chat.at("template"));
  EXPECT_EQ(prompt(), expected);
}

TEST(TextGenerator, WritesWhatTransformersWritesWithSmolLM2) {
  const TextGenerator model = TextGenerator::load(fetched("models/smollm2-135m-instruct").string());
  EXPECT_THAT(model.describe(),
              AllOf(HasSubstr("30 layers"), HasSubstr("9 heads of 64 (3 of keys and values)")));
  GenerateOptions options = one_thread();
  options.max_tokens = 12;
  const GeneratedText result = model.generate("The capital of France is", options);
  EXPECT_THAT(model.chat_prompt({{"user", "Hi"}}), HasSubstr("named SmolLM"));
  // tools/compare_generation.py prints these, the first of 64.
  EXPECT_EQ(result.ids,
            (std::vector<std::int32_t>{7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33}));
}

}  // namespace
}  // namespace stof::model
