// Models through the C interface: the small checkpoints of tests/data, against what transformers
// computed of them in float64.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "model/encoders_golden.h"
#include "model/tiny_llama.h"
#include "model/tiny_t5.h"
#include "model/vit_golden.h"
#include "stof/models.h"

namespace stof::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Release {
  void operator()(stof_model* model) const { stof_model_release(model); }
};
using Model = std::unique_ptr<stof_model, Release>;

Model load(const std::string& path) {
  stof_model* model = nullptr;
  EXPECT_EQ(stof_model_load(path.c_str(), nullptr, &model), STOF_OK) << stof_last_error();
  return Model(model);
}

Model encoder() {
  const EncodersGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("bert"));
  return load(folder.path());
}

Model generator() {
  const LlamaGolden golden;
  const TemporaryFolder folder;
  json config = golden.at("base").at("config");
  config["eos_token_id"] = 49;
  golden.write(folder, golden.at("base"), config, golden.weights(golden.at("base")));
  return load(folder.path());
}

Model seq2seq() {
  const T5Golden golden;
  const TemporaryFolder folder;
  json config = golden.at("gated-gelu").at("config");
  config["task_specific_params"] = {{"summarization", {{"prefix", "sum: "}, {"max_length", 5}}}};
  golden.write(folder, config, golden.weights(golden.at("gated-gelu")));
  folder.write("tokenizer.json", tiny_unigram_json().dump());
  return load(folder.path());
}

Model classifier() {
  const VitGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("base"));
  return load(folder.path());
}

/// Of a function that ends in a char**.
template <class Call>
json answer(Call call) {
  char* text = nullptr;
  EXPECT_EQ(call(&text), STOF_OK) << stof_last_error();
  const json parsed = json::parse(text == nullptr ? "null" : text);
  stof_text_release(text);
  return parsed;
}

/// "status: message"
std::string failure(stof_status status) {
  return std::string(stof_status_name(status)) + ": " + stof_last_error();
}

/// A view of `values` that the library writes.
struct Output {
  explicit Output(const Dims& dims)
      : shape(dims.begin(), dims.end()), values(DType::kFloat32, dims) {
    for (float& value : values.as<float>()) value = NAN;
    view.struct_size = sizeof view;
    view.dtype = STOF_FLOAT32;
    view.data = values.data();
    view.rank = dims.rank();
    view.shape = shape.data();
  }
  std::vector<std::int64_t> shape;
  Tensor values;
  stof_tensor view{};
};

template <class Options>
Options sized() {
  Options options{};
  options.struct_size = sizeof options;
  return options;
}

TEST(Models, SayWhatTheyAre) {
  const Model models[] = {encoder(), generator(), classifier(), seq2seq()};
  for (std::int32_t i = 0; i < 4; ++i) {
    std::int32_t kind = -1;
    ASSERT_EQ(stof_model_kind(models[i].get(), &kind), STOF_OK);
    EXPECT_EQ(kind, i);
    const json facts = answer([&](char** out) { return stof_model_to_json(models[i].get(), out); });
    EXPECT_EQ(facts.at("kind"), (std::vector{"encoder", "generator", "image classifier",
                                             "seq2seq generator"})[static_cast<std::size_t>(i)]);
    EXPECT_EQ(facts.at("place"), "CPU, float32");
    EXPECT_EQ(facts.at("num_layers"), i == STOF_GENERATOR ? 3 : 2);
  }
  char* text = nullptr;
  EXPECT_EQ(failure(stof_model_fill_mask(models[1].get(), 0, nullptr, nullptr, 0, nullptr, &text)),
            "Unsupported: model: expected an encoder, got a generator");
  EXPECT_EQ(failure(stof_model_generate(models[2].get(), 0, nullptr, nullptr, nullptr, &text)),
            "Unsupported: model: expected a generator, got an image classifier");
  EXPECT_EQ(failure(stof_model_classify_files(models[0].get(), 0, nullptr, nullptr, &text)),
            "Unsupported: model: expected an image classifier, got an encoder");
  EXPECT_EQ(
      failure(stof_model_tokenize(models[2].get(), "a", -1, 0, &text)),
      "Unsupported: model: expected an encoder, a generator or a seq2seq generator, got an image "
      "classifier");
  EXPECT_EQ(failure(stof_model_task(models[1].get(), nullptr, nullptr, &text)),
            "Unsupported: model: expected a seq2seq generator, got a generator");
  EXPECT_EQ(failure(stof_model_chat_prompt(models[3].get(), 0, nullptr, &text)),
            "Unsupported: model: expected a generator, got a seq2seq generator");
  EXPECT_EQ(text, nullptr);
}

TEST(Models, EmbedTexts) {
  const EncodersGolden golden;
  const json& tokenizer = golden.tokenizer(golden.at("bert"));
  const std::string text = tokenizer.at("text");
  const auto tokens = tokenizer.at("ids").size();
  const Model model = encoder();
  const json encoded = answer(
      [&](char** out) { return stof_model_tokenize(model.get(), text.c_str(), -1, 0, out); });
  EXPECT_EQ(encoded.at("ids"), tokenizer.at("ids"));

  const char* const texts[] = {"a", text.c_str()};
  const std::int64_t rows = static_cast<std::int64_t>(tokens) + 3;
  Output states({rows, 24});
  ASSERT_EQ(stof_model_encode_tokens(model.get(), 2, texts, nullptr, nullptr, &states.view),
            STOF_OK)
      << stof_last_error();
  const TensorView expected = golden.expected("states", golden.at("bert"));
  const Tensor last = Tensor::copy_of({states.values.as<float>().data() + 3 * 24,
                                       DType::kFloat32,
                                       {static_cast<std::int64_t>(tokens), 24}});
  EXPECT_LT(relative_difference(last, expected), kRelative);

  // Of lengths that are given; the mean of the states, of length 1 where that is asked for.
  auto options = sized<stof_encode_options>();
  options.normalize = STOF_NORMALIZE;
  options.num_threads = 1;
  const std::string longer = text + " and what is not read";
  const char* const cut[] = {longer.c_str()};
  const std::int64_t bytes[] = {static_cast<std::int64_t>(text.size())};
  Output plain({1, 24}), unit({1, 24});
  ASSERT_EQ(stof_model_embed(model.get(), 1, cut, bytes, nullptr, &plain.view), STOF_OK);
  ASSERT_EQ(stof_model_embed(model.get(), 1, cut, bytes, &options, &unit.view), STOF_OK);
  Tensor mean(DType::kFloat32, {1, 24});
  double square = 0;
  for (std::size_t i = 0; i < 24; ++i) {
    double sum = 0;
    for (std::size_t t = 0; t < tokens; ++t)
      sum += static_cast<const float*>(expected.data)[t * 24 + i];
    mean.as<float>()[i] = static_cast<float>(sum / static_cast<double>(tokens));
    square += std::pow(sum / static_cast<double>(tokens), 2);
  }
  EXPECT_LT(relative_difference(plain.values, mean.view()), kRelative);
  for (float& value : mean.as<float>()) value /= static_cast<float>(std::sqrt(square));
  EXPECT_LT(relative_difference(unit.values, mean.view()), kRelative);
}

TEST(Models, RefuseWrongOptionsAndTensorsOfEncoders) {
  const Model model = encoder();
  const char* const texts[] = {"a [MASK]", nullptr};
  Output wrong({1, 23}), vector({1, 24});
  const auto embed = [&](const stof_encode_options* options, std::int64_t count = 1) {
    return failure(stof_model_embed(model.get(), count, texts, nullptr, options, &vector.view));
  };
  EXPECT_EQ(failure(stof_model_embed(model.get(), 1, texts, nullptr, nullptr, &wrong.view)),
            "InvalidArgument: embeddings: expected row-major float32[1, 24], got float32[1, 23]");
  EXPECT_THAT(failure(stof_model_embed(model.get(), 1, texts, nullptr, nullptr, nullptr)),
              HasSubstr("embeddings: expected a pointer"));
  EXPECT_THAT(embed(nullptr, -1), HasSubstr("num_texts: expected 0 or more, got -1"));
  EXPECT_THAT(embed(nullptr, 2), HasSubstr("texts[1]: expected a pointer"));
  auto options = sized<stof_encode_options>();
  options.normalize = 3;
  EXPECT_THAT(embed(&options), HasSubstr("options.normalize: expected 0"));
  options.normalize = STOF_NORMALIZE_NOT;
  options.reserved = 1;
  EXPECT_THAT(embed(&options), HasSubstr("options.reserved: expected 0, got 1"));
  options.reserved = 0;
  char* text = nullptr;
  EXPECT_THAT(failure(stof_model_fill_mask(model.get(), 1, texts, nullptr, 0, &options, &text)),
              HasSubstr("options.normalize: expected 0, of embeddings alone"));
  options.mask_set = R"({"default": "all", "rules": [{"layers": [7], "mask": "all"}]})";
  EXPECT_THAT(embed(&options), HasSubstr("mask: rules[0].layers"));
  stof_mask* mask = nullptr;
  ASSERT_EQ(stof_mask_parse("causal", nullptr, &mask), STOF_OK);
  options.mask = mask;
  EXPECT_THAT(embed(&options),
              HasSubstr("options.mask_set: expected null beside a mask, got both"));
  stof_mask_release(mask);
  options.mask = nullptr;
  options.mask_set = nullptr;
  options.batch = -1;
  EXPECT_THAT(embed(&options), HasSubstr("batch: expected at least 1, got -1"));
  options.batch = 1;
  options.on_progress = [](void* context, std::int64_t done, std::int64_t) {
    return *static_cast<std::int32_t*>(context) = static_cast<std::int32_t>(done);
  };
  std::int32_t done = 0;
  options.context = &done;
  EXPECT_THAT(embed(&options), HasSubstr("Cancelled: "));
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(std::isnan(vector.values.as<float>()[0]));  // a failed call writes nothing
}

TEST(Models, FillMasks) {
  const EncodersGolden golden;
  const json& tokenizer = golden.tokenizer(golden.at("bert"));
  const std::string text = tokenizer.at("text");
  const char* const texts[] = {text.c_str()};
  const TemporaryFolder folder;  // the head is read when it is first asked for
  golden.write(folder, golden.at("bert"));
  const Model model = load(folder.path());
  const json filled = answer([&](char** out) {
    return stof_model_fill_mask(model.get(), 1, texts, nullptr, 40, nullptr, out);
  });
  ASSERT_EQ(filled.at(0).size(), 2u);
  const auto* logits = static_cast<const float*>(golden.expected("logits", golden.at("bert")).data);
  for (std::size_t i = 0; i < 2; ++i, logits += 40) {
    EXPECT_EQ(tokenizer.at("ids").at(filled[0][i].at("position").get<std::size_t>()), 4);
    double sum = 0;
    for (int id = 0; id < 40; ++id) sum += std::exp(logits[id]);
    ASSERT_EQ(filled[0][i].at("candidates").size(), 40u);
    for (const json& candidate : filled[0][i].at("candidates"))
      EXPECT_NEAR(candidate.at("probability").get<double>() /
                      (std::exp(logits[candidate.at("id").get<int>()]) / sum),
                  1, 5e-5);
  }
}

TEST(Models, Generate) {
  const LlamaGolden golden;
  const Model model = generator();
  const std::vector<std::int32_t> ids = golden.ids();
  const auto count = static_cast<std::int64_t>(ids.size());
  Output logits({count, 50});
  auto options = sized<stof_generate_options>();
  options.prefill_chunk = 5;
  ASSERT_EQ(stof_model_logits(model.get(), count, ids.data(), &options, &logits.view), STOF_OK)
      << stof_last_error();
  EXPECT_LT(relative_error(logits.values, golden.logits("base")), kTolerance);

  std::string streamed;
  options.context = &streamed;
  options.on_text = [](void* context, const char* piece, std::int64_t bytes) {
    static_cast<std::string*>(context)->append(piece, static_cast<std::size_t>(bytes));
    return 0;
  };
  options.max_tokens = 12;
  options.temperature = 1.5;
  options.seed = 3;
  const char* const prompts[] = {"abc", "hello world"};
  const auto generate = [&](std::int64_t prompts_given) {
    return answer([&](char** out) {
      return stof_model_generate(model.get(), prompts_given, prompts, nullptr, &options, out);
    });
  };
  const json whole = generate(1).at(0);
  const std::string text = whole.at("text");
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(whole.at("ids").size(), 12u);
  EXPECT_EQ(whole.at("stopped_by"), "token limit");
  EXPECT_EQ(whole.at("prompt_tokens"), 3);
  const std::vector<std::int32_t> chosen = whole.at("ids");
  char* written = nullptr;
  std::int64_t bytes = 0;
  ASSERT_EQ(stof_model_detokenize(model.get(), 12, chosen.data(), &written, &bytes), STOF_OK);
  EXPECT_EQ(std::string(written, static_cast<std::size_t>(bytes)), text);
  stof_text_release(written);

  options.on_text = nullptr;
  const json both = generate(2);
  EXPECT_EQ(both.at(0).at("ids"), whole.at("ids"));
  EXPECT_EQ(both.at(1).at("prompt_tokens"), 11);
  const std::string stop = text.substr(4, 3);
  const char* const stops[] = {stop.c_str()};
  options.num_stop = 1;
  options.stop = stops;
  EXPECT_EQ(generate(1).at(0).at("text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(generate(1).at(0).at("stopped_by"), "stop string");
  options.num_stop = 0;
  stof_mask* mask = nullptr;
  ASSERT_EQ(stof_mask_parse("window(1, 0)", nullptr, &mask), STOF_OK);
  options.mask = mask;
  EXPECT_NE(generate(1).at(0).at("text"), text);
  stof_mask_release(mask);
}

TEST(Models, TurnTextsIntoTexts) {
  const T5Golden golden;
  const json& entry = golden.at("gated-gelu");
  const Model model = seq2seq();
  const std::vector<std::int32_t> source = golden.source(), target = golden.target(entry);
  const auto count = static_cast<std::int64_t>(source.size());
  const auto written = static_cast<std::int64_t>(target.size()) - 1;
  Output states({count, 16}), logits({written + 1, 40});
  ASSERT_EQ(stof_model_encode_ids(model.get(), count, source.data(), nullptr, &states.view),
            STOF_OK);
  EXPECT_LT(relative_error(states.values, golden.encoded(entry)), kTolerance);
  ASSERT_EQ(stof_model_seq2seq_logits(model.get(), count, source.data(), written, target.data() + 1,
                                      nullptr, &logits.view),
            STOF_OK);
  EXPECT_LT(relative_error(logits.values, golden.logits(entry)), kTolerance);

  const json facts = answer([&](char** out) { return stof_model_to_json(model.get(), out); });
  const json summary = {{"name", "summarization"}, {"prefix", "sum: "}, {"max_tokens", 5}};
  EXPECT_EQ(facts.at("tasks"), json::array({summary}));
  EXPECT_EQ(facts.at("num_decoder_layers"), 2);
  EXPECT_EQ(answer([&](char** out) { return stof_model_task(model.get(), nullptr, nullptr, out); }),
            summary);
  EXPECT_EQ(answer([&](char** out) {
              return stof_model_task(model.get(), "en", "German", out);
            }).at("prefix"),
            "translate English to German: ");

  auto options = sized<stof_generate_options>();
  options.max_tokens = 8;
  options.num_threads = 1;
  const char* const texts[] = {"the house is small", "x"};
  const auto generate = [&](std::int64_t given) {
    return answer([&](char** out) {
      return stof_model_generate(model.get(), given, texts, nullptr, &options, out);
    });
  };
  const json both = generate(2);
  EXPECT_EQ(both.at(0).at("ids"), generate(1).at(0).at("ids"));
  EXPECT_EQ(both.at(1).at("prompt_tokens"), 3);  // "_", "x", "</s>"
  const std::vector<std::int32_t> ids = both.at(0).at("ids");
  char* text = nullptr;
  ASSERT_EQ(stof_model_detokenize(model.get(), static_cast<std::int64_t>(ids.size()), ids.data(),
                                  &text, nullptr),
            STOF_OK);
  EXPECT_EQ(text, both.at(0).at("text").get<std::string>());
  stof_text_release(text);
  text = nullptr;
  EXPECT_EQ(answer([&](char** out) {
              return stof_model_tokenize(model.get(), "x", -1, 0, out);
            }).at("tokens"),
            json::array({"\u2581", "x", "</s>"}));

  options.prefill_chunk = 4;
  EXPECT_THAT(
      failure(stof_model_generate(model.get(), 1, texts, nullptr, &options, &text)),
      HasSubstr("options.prefill_chunk: expected 0 of a seq2seq generator, which reads a text at"));
  options.prefill_chunk = 0;
  EXPECT_THAT(failure(stof_model_task(model.get(), "en", nullptr, &text)),
              HasSubstr("target: expected a language beside the other"));
  // Ended between two tokens.
  std::int32_t flag = 1;
  stof_set_cancel_flag(&flag);
  EXPECT_EQ(stof_model_generate(model.get(), 1, texts, nullptr, &options, &text), STOF_CANCELLED);
  stof_set_cancel_flag(nullptr);
  EXPECT_EQ(text, nullptr);
}

TEST(Models, EndTextsWhereTheyAreTold) {
  const Model model = generator();
  auto options = sized<stof_generate_options>();
  std::int32_t calls = 0;
  options.context = &calls;
  options.temperature = 1;
  options.on_text = [](void* context, const char*, std::int64_t) {
    return ++*static_cast<std::int32_t*>(context) == 3 ? 1 : 0;
  };
  const char* const prompts[] = {"abc", "d"};
  char* text = nullptr;
  const auto generate = [&](std::int64_t count) {
    return failure(stof_model_generate(model.get(), count, prompts, nullptr, &options, &text));
  };
  EXPECT_THAT(generate(1), HasSubstr("Cancelled: "));
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(generate(2), HasSubstr("InvalidArgument: on_text: expected none with several"));
  // The flag, set while a token is computed, ends the call before the next.
  static std::int32_t flag = 0;
  calls = flag = 0;
  options.on_text = [](void* context, const char*, std::int64_t) {
    flag = 1;
    ++*static_cast<std::int32_t*>(context);
    return 0;
  };
  stof_set_cancel_flag(&flag);
  EXPECT_THAT(generate(1), HasSubstr("Cancelled: "));
  EXPECT_EQ(calls, 1);
  Output logits({1, 50});
  const std::int32_t id = 1;
  EXPECT_EQ(stof_model_logits(model.get(), 1, &id, nullptr, &logits.view), STOF_CANCELLED);
  stof_set_cancel_flag(nullptr);
  EXPECT_EQ(stof_model_logits(model.get(), 1, &id, nullptr, &logits.view), STOF_OK);
  EXPECT_EQ(text, nullptr);
  options.on_text = nullptr;
  options.max_tokens = -1;
  EXPECT_THAT(generate(1), HasSubstr("max_tokens: expected at least 1, got -1"));
  EXPECT_THAT(failure(stof_model_chat_prompt(model.get(), 0, nullptr, &text)),
              HasSubstr("num_messages: expected at least 1, got 0"));
  auto message = sized<stof_chat_message>();
  EXPECT_THAT(failure(stof_model_chat_prompt(model.get(), 1, &message, &text)),
              HasSubstr("messages[0].role: expected a pointer"));
  message.role = "user";
  message.content = "a";
  EXPECT_THAT(failure(stof_model_chat_prompt(model.get(), 1, &message, &text)),
              HasSubstr("Unsupported: "));
}

TEST(Models, ClassifyImages) {
  const VitGolden golden;
  const Model model = classifier();
  const std::string path = VitGolden::image("vit_rgb.png");
  const char* const paths[] = {path.c_str()};
  const json labels = answer(
      [&](char** out) { return stof_model_classify_files(model.get(), 1, paths, nullptr, out); });
  const auto* logits = static_cast<const float*>(golden.tensor("logits.base").data);
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += std::exp(logits[i]);
  ASSERT_EQ(labels.at(0).size(), 4u);
  for (const json& label : labels[0])
    EXPECT_NEAR(label.at("probability").get<double>(),
                std::exp(logits[label.at("id").get<int>()]) / sum, 1e-5);

  // From memory: the same pixels give the same labels, several images by batches.
  std::vector<std::uint8_t> image(12 * 12 * 3);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * 37);
  const std::int64_t shape[] = {12, 12, 3};
  auto rgb = sized<stof_tensor>();
  rgb.dtype = STOF_UINT8;
  rgb.data = image.data();
  rgb.rank = 3;
  rgb.shape = shape;
  Output pixels({3, 12, 12});
  ASSERT_EQ(stof_model_pixels(model.get(), &rgb, &pixels.view), STOF_OK) << stof_last_error();
  Output three({3, 3, 12, 12});
  for (std::size_t i = 0; i < three.values.as<float>().size(); ++i)
    three.values.as<float>()[i] = pixels.values.as<float>()[i % (3 * 12 * 12)];
  auto options = sized<stof_classify_options>();
  options.batch = 2;
  options.count = 1;
  const json found = answer(
      [&](char** out) { return stof_model_classify(model.get(), &three.view, &options, out); });
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].size(), 1u);
  EXPECT_EQ(found[0], found[2]);
  rgb.rank = 2;
  EXPECT_THAT(failure(stof_model_pixels(model.get(), &rgb, &pixels.view)),
              HasSubstr("image: expected uint8 [height, width, 3], got uint8 [12, 12]"));
  char* text = nullptr;
  EXPECT_THAT(failure(stof_model_classify(model.get(), &pixels.view, nullptr, &text)),
              HasSubstr("pixels: expected float32 [images, 3, 12, 12], got float32 [3, 12, 12]"));
}

TEST(Models, AreSharedByThreads) {
  const Model encodes = encoder(), writes = generator();
  const char* const texts[] = {"a b c"};
  Output expected({1, 24});
  auto options = sized<stof_encode_options>();
  options.num_threads = 1;
  ASSERT_EQ(stof_model_embed(encodes.get(), 1, texts, nullptr, &options, &expected.view), STOF_OK);
  const auto written = [&] {
    return answer([&](char** out) {
             return stof_model_generate(writes.get(), 1, texts, nullptr, nullptr, out);
           })
        .at(0)
        .at("ids");
  };
  const json ids = written();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Output found({1, 24});
      stof_model_embed(encodes.get(), 1, texts, nullptr, &options, &found.view);
      wrong += !std::ranges::equal(found.values.as<float>(), expected.values.as<float>());
      wrong += written() != ids;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace stof::model
