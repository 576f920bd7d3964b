// The real checkpoint: parity with the golden file of tools/make_golden_bert.py.

#include "stof/text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>
#include <thread>

#include "model/test_data.h"
#include "stof/error.h"
#include "stof/safetensors.h"

namespace stof::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The bound of the parity tests, on every element and on 1 - cosine of every vector.
constexpr double kMaxDifference = 2e-5;
constexpr double kMaxCosineDistance = 1e-5;

const TextEncoder& minilm() {
  static const TextEncoder encoder = TextEncoder::load(minilm_folder());
  return encoder;
}

struct Golden {
  nlohmann::json texts = read_golden_json("bert_golden.json");
  SafetensorsFile tensors =
      SafetensorsFile::open(std::string(STOF_TEST_DATA) + "/bert_golden.safetensors");

  std::vector<std::string> all_texts() const {
    auto result = texts["sentences"].get<std::vector<std::string>>();
    std::map<int, std::string> paragraphs;
    for (auto& [index, text] : corpus_paragraphs()) paragraphs[index] = text;
    for (const int index : texts["paragraphs"]) result.push_back(paragraphs.at(index));
    return result;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> result;
    for (const std::string name : texts["files"])
      result.push_back(read_file(fetched("corpus/django-docs") / name));
    return result;
  }
};

void expect_parity(const Tensor& found, const TensorView& expected) {
  ASSERT_EQ(found.shape(), expected.shape);
  const auto a = found.as<float>();
  const auto* b = static_cast<const float*>(expected.data);
  const auto width = static_cast<std::size_t>(found.shape()[1]);
  double worst = 0, worst_cosine = 0;
  for (std::size_t row = 0; row < a.size() / width; ++row) {
    double dot = 0, aa = 0, bb = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      ASSERT_TRUE(std::isfinite(a[i])) << "row " << row << " element " << i - row * width;
      ASSERT_NEAR(a[i], b[i], kMaxDifference) << "row " << row << " element " << i - row * width;
      worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
      dot += static_cast<double>(a[i]) * b[i];
      aa += static_cast<double>(a[i]) * a[i];
      bb += static_cast<double>(b[i]) * b[i];
    }
    const double distance = 1 - dot / std::sqrt(aa * bb);
    ASSERT_LT(distance, kMaxCosineDistance) << "row " << row;
    worst_cosine = std::max(worst_cosine, distance);
  }
  ::testing::Test::RecordProperty("worst_difference", ::testing::PrintToString(worst));
  std::printf("largest difference %.2e, largest cosine distance %.2e over %zu vectors\n", worst,
              worst_cosine, a.size() / width);
}

TEST(TextEncoder, DescribesTheRealCheckpoint) {
  EXPECT_EQ(minilm().hidden_size(), 384);
  EXPECT_EQ(minilm().num_layers(), 6);
  EXPECT_EQ(minilm().num_heads(), 12);
  EXPECT_EQ(minilm().max_tokens(), 256);
  EXPECT_EQ(minilm().describe(),
            "BERT: 6 layers, hidden 384, 12 heads of 32, inner 1536 with gelu (erf), vocabulary "
            "30522, 256 of 512 positions; mean pooling, normalised");
}

TEST(TextEncoder, EqualsTheReferenceOnRealTexts) {
  const Golden golden;
  const std::vector<std::string> texts = golden.all_texts();
  ASSERT_GE(texts.size(), 50u);
  EncodeTiming timing;
  expect_parity(minilm().embed(texts, {}, &timing), golden.tensors.require("embeddings"));
  EXPECT_GT(timing.tokenize, 0);
  EXPECT_GT(timing.plan, 0);
  EXPECT_GT(timing.attention, 0);
  EXPECT_GT(timing.total, timing.tokenize + timing.plan + timing.attention);
}

TEST(TextEncoder, EqualsTheReferenceUnderSparseMasks) {
  const Golden golden;
  const std::map<std::string, mask::Mask> masks = {{"dense", mask::all()},
                                                   {"sliding", mask::window(24, 24)},
                                                   {"bigbird", mask::bigbird(32, 1, 1, 2, 11)}};
  ASSERT_EQ(golden.texts["masks"].size(), masks.size());
  for (const auto& [name, mask] : masks) {
    SCOPED_TRACE(name);
    EncodeOptions options;
    options.mask = mask;
    options.max_tokens = 512;
    expect_parity(minilm().embed(golden.files(), options), golden.tensors.require("long_" + name));
  }
}

TEST(TextEncoder, EqualsTheReferencesHiddenStates) {
  const Golden golden;
  const std::vector<std::string> texts = golden.all_texts();
  std::vector<std::string> chosen;
  for (const std::size_t i : golden.texts["hidden_of"]) chosen.push_back(texts[i]);
  const std::vector<Tensor> states = minilm().encode_tokens(chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::size_t number = golden.texts["hidden_of"][i];
    const TensorView& expected = golden.tensors.require("hidden_" + std::to_string(number));
    ASSERT_EQ(states[i].shape(), expected.shape);
    const auto* values = static_cast<const float*>(expected.data);
    // Not normalised: components reach 10, so the bound is relative to the largest.
    for (std::size_t j = 0; j < states[i].as<float>().size(); ++j)
      ASSERT_NEAR(states[i].as<float>()[j], values[j], 2e-5 * 3) << "text " << number;
  }
}

TEST(TextEncoder, GivesATextTheSameVectorInAnyCompany) {
  const Golden golden;
  std::vector<std::string> texts = golden.all_texts();
  texts.resize(40);
  const Tensor together = minilm().embed(texts);
  for (const std::int64_t batch : {1, 7, 64}) {
    EncodeOptions options;
    options.batch = batch;
    options.num_threads = 1;
    expect_parity(minilm().embed(texts, options), together.view());
  }
}

TEST(TextEncoder, TokenizesWithTheCheckpointsLimit) {
  const EncodedText encoded = minilm().tokenize("Hello, [MASK]!");
  EXPECT_THAT(encoded.tokens, ElementsAre("[CLS]", "hello", ",", "[MASK]", "!", "[SEP]"));
  EXPECT_FALSE(encoded.truncated);
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  EXPECT_EQ(minilm().tokenize(text).ids.size(), 256u);
  EXPECT_TRUE(minilm().tokenize(text).truncated);
  EXPECT_EQ(minilm().tokenize(text, 512).ids.size(), 512u);
}

TEST(TextEncoder, RefusesOptionsThatCannotBeHonoured) {
  const auto message = [&](auto change) -> std::string {
    EncodeOptions options;
    change(options);
    try {
      minilm().embed({"text"}, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([](auto& o) { o.max_tokens = 513; }), HasSubstr("got 513"));
  EXPECT_THAT(message([](auto& o) { o.max_tokens = 1; }), HasSubstr("got 1"));
  EXPECT_THAT(message([](auto& o) { o.batch = 0; }), HasSubstr("batch"));
  EXPECT_THAT(message([](auto& o) { o.num_threads = -1; }), HasSubstr("num_threads"));
  // OpenMP would end the process.
  EXPECT_THAT(message([](auto& o) { o.num_threads = 1000000; }), HasSubstr("to 1024, got 1000000"));
  EXPECT_THAT(message([](auto& o) {
                o.mask = mask::per_batch({mask::all(), mask::causal()});
              }),
              HasSubstr("2 batch entries"));
  EXPECT_THAT(message([](auto& o) {
                o.mask = mask::per_head({mask::all(), mask::causal()});
              }),
              HasSubstr("12"));
  EXPECT_THROW(minilm().embed({"caf\xE9"}), Error);
}

TEST(TextEncoder, ReportsProgressAndEncodesNothing) {
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  EncodeOptions options;
  options.batch = 2;
  options.progress = [&](std::int64_t done, std::int64_t all) { calls.emplace_back(done, all); };
  minilm().embed({"a", "b", "c", "d", "e"}, options);
  EXPECT_THAT(calls, ElementsAre(std::pair(2, 5), std::pair(4, 5), std::pair(5, 5)));
  EXPECT_EQ(minilm().embed({}).shape(), Dims({0, 384}));
  EXPECT_TRUE(minilm().encode_tokens({}).empty());
}

TEST(TextEncoder, ServesSeveralThreads) {
  const std::vector<std::string> texts = {"one", "two words", "three words here"};
  const Tensor expected = minilm().embed(texts);
  std::vector<std::thread> threads;
  std::vector<Tensor> results(4);
  for (Tensor& result : results)
    threads.emplace_back([&] {
      EncodeOptions options;
      options.num_threads = 1;
      for (int i = 0; i < 3; ++i) result = minilm().embed(texts, options);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) expect_parity(result, expected.view());
}

}  // namespace
}  // namespace stof::model
