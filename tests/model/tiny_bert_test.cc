// A small random checkpoint against plain loops in double: every setting that changes numbers,
// every mask, and checkpoints that are wrong.

#include "model/tiny_bert.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/expect_error.h"
#include "model/test_data.h"
#include "stof/error.h"
#include "stof/text_encoder.h"

namespace stof::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTolerance = 2e-5;

/// Texts of unequal, of equal and of no length.
const std::vector<std::string> kTexts = {"", TinyBert::letters(9, 1), "a", TinyBert::letters(70, 2),
                                         TinyBert::letters(9, 3)};

/// Largest difference between stof and the loops over all texts.
double difference(const TinyBert& tiny, const mask::Mask& mask = {},
                  const std::vector<std::string>& texts = kTexts) {
  const TemporaryFolder folder;
  tiny.write(folder);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  EncodeOptions options;
  options.mask = mask;
  options.batch = 4;
  const std::vector<Tensor> found = encoder.encode_tokens(texts, options);
  double worst = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto ids = encoder.tokenize(texts[i]).ids;
    const auto expected = tiny.run(ids, mask);
    EXPECT_EQ(found[i].shape(), Dims({static_cast<std::int64_t>(ids.size()), 24}));
    for (std::size_t t = 0; t < ids.size(); ++t)
      for (std::size_t c = 0; c < 24; ++c) {
        const double off = std::abs(found[i].as<float>()[t * 24 + c] - expected[t][c]);
        worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
      }
  }
  return worst;
}

/// With another setting the answer must follow it, and must differ from the answer without.
void expect_honoured(const char* field, const nlohmann::json& value) {
  const TinyBert tiny;
  TinyBert changed;
  changed.config[field] = value;
  EXPECT_LT(difference(changed), kTolerance) << field << " " << value;
  const std::vector<std::int32_t> ids = {2, 5, 9, 7, 3};
  const auto a = tiny.run(ids, {}), b = changed.run(ids, {});
  double apart = 0;
  for (std::size_t t = 0; t < a.size(); ++t)
    for (std::size_t c = 0; c < 24; ++c) apart = std::max(apart, std::abs(a[t][c] - b[t][c]));
  EXPECT_GT(apart, 2 * kTolerance) << field << ": the test could not tell";
}

TEST(TinyBert, EqualsPlainLoops) { EXPECT_LT(difference(TinyBert()), kTolerance); }

TEST(TinyBert, FollowsEveryFieldThatChangesNumbers) {
  expect_honoured("layer_norm_eps", 0.1);     // Case 30
  expect_honoured("hidden_act", "gelu_new");  // Case 31
  expect_honoured("hidden_act", "relu");
  expect_honoured("num_attention_heads", 1);
  expect_honoured("num_attention_heads", 6);
}

TEST(TinyBert, AddsTheFirstSegmentOfSeveral) {
  TinyBert tiny;
  tiny.config["type_vocab_size"] = 3;
  tiny.random("embeddings.token_type_embeddings.weight", {3, 24}, 2);
  EXPECT_LT(difference(tiny), kTolerance);
}

TEST(TinyBert, ReadsOtherNamesOfTheSameTensors) {
  for (const char* prefix : {"bert.", "0.auto_model."}) {
    TinyBert tiny;
    tiny.prefix = prefix;
    EXPECT_LT(difference(tiny), kTolerance) << prefix;
  }
  TinyBert early;
  for (const std::string norm : {"embeddings.LayerNorm", "encoder.layer.0.output.LayerNorm"})
    for (const auto& [usual_name, early_name] :
         {std::pair{".weight", ".gamma"}, {".bias", ".beta"}}) {
      auto tensor = early.tensors.extract(norm + usual_name);
      tensor.key() = norm + early_name;
      early.tensors.insert(std::move(tensor));
    }
  const TemporaryFolder early_folder, usual_folder;
  early.write(early_folder);
  TinyBert().write(usual_folder);
  const Tensor a = TextEncoder::load(early_folder.path()).embed({"a b c"});
  const Tensor b = TextEncoder::load(usual_folder.path()).embed({"a b c"});
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(a.as<float>()[i], b.as<float>()[i]);
}

TEST(TinyBert, ReadsHalfPrecisionWeights) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    TinyBert stored, rounded;
    for (auto& [name, tensor] : stored.tensors) {
      tensor = Tensor::converted(tensor.view(), dtype);
      rounded.tensors[name] = Tensor::converted(tensor.view(), DType::kFloat32);
    }
    const TemporaryFolder folder, rounded_folder;
    stored.write(folder);
    rounded.write(rounded_folder);
    const Tensor a = TextEncoder::load(folder.path()).embed({"a b c"});
    const Tensor b = TextEncoder::load(rounded_folder.path()).embed({"a b c"});
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(a.as<float>()[i], b.as<float>()[i]);
  }
}

TEST(TinyBert, FollowsAnyMask) {
  const std::pair<const char*, mask::Mask> kMasks[] = {
      {"window", mask::window(3, 5)},
      {"bigbird", mask::bigbird(8, 1, 1, 1, 3)},
      {"causal", mask::causal()},
      {"no key at all", mask::none()},
      {"per head", mask::per_head({mask::all(), mask::causal(), mask::window(1, 1)})},
      {"longformer", mask::longformer(4, 2)}};
  for (const auto& [name, mask] : kMasks)
    EXPECT_LT(difference(TinyBert(), mask), kTolerance) << name;
}

TEST(TinyBert, AppliesABidirectionalWindowToLongTexts) {
  // Case 35: 300 tokens, radius 64; with 20 keys hidden as padding too. Full attention differs.
  TinyBert tiny;
  const mask::Mask window = mask::window(64, 64);
  const mask::Mask padded = window & mask::key_lengths({280});
  const std::vector<std::string> text = {TinyBert::letters(298, 2)};
  EXPECT_LT(difference(tiny, window, text), kTolerance);
  EXPECT_LT(difference(tiny, padded, text), kTolerance);
  const TemporaryFolder folder;
  tiny.write(folder);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const auto states = [&](const mask::Mask& mask) {
    EncodeOptions options;
    options.mask = mask;
    return encoder.encode_tokens(text, options)[0];
  };
  const Tensor full = states({}), windowed = states(window), hidden = states(padded);
  const auto apart = [](const Tensor& a, const Tensor& b, std::size_t row) {
    double worst = 0;
    for (std::size_t i = row * 24; i < row * 24 + 24; ++i)
      worst = std::max(worst, std::abs(static_cast<double>(a.as<float>()[i]) - b.as<float>()[i]));
    return worst;
  };
  for (const std::size_t row : {0u, 150u, 299u}) EXPECT_GT(apart(full, windowed, row), 1e-2);
  EXPECT_GT(apart(windowed, hidden, 250), 1e-3);
  // Two layers of radius 64 reach key 128: far from the padding.
  EXPECT_LT(apart(windowed, hidden, 0), 1e-5);
}

TEST(TinyBert, PoolsAsTheFilesSay) {
  const std::pair<const char*, int> kModes[] = {{"mean", 0}, {"cls", 1}, {"max", 2}};
  for (const auto& [mode, kind] : kModes) {
    TinyBert tiny;
    const TemporaryFolder folder;
    tiny.write(folder);
    folder.write("modules.json",
                 R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
                     {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
    const std::string key = fmt::format("pooling_mode_{}_token{}", mode, kind == 1 ? "" : "s");
    folder.write("1_Pooling/config.json",
                 nlohmann::json{{"word_embedding_dimension", 24}, {key, true}}.dump());
    const TextEncoder encoder = TextEncoder::load(folder.path());
    const Tensor found = encoder.embed({"a b c d"});
    const auto states = tiny.run(encoder.tokenize("a b c d").ids, {});
    for (std::size_t c = 0; c < 24; ++c) {
      double expected = states[0][c];
      for (std::size_t t = 1; t < states.size(); ++t) {
        if (kind == 0) expected += states[t][c];
        if (kind == 2) expected = std::max(expected, states[t][c]);
      }
      if (kind == 0) expected /= static_cast<double>(states.size());
      EXPECT_NEAR(found.as<float>()[c], expected, kTolerance) << mode;
    }
  }
}

// --- checkpoints that are wrong -----------------------------------------------------------------

std::string load_error(ErrorCode code, const TemporaryFolder& folder) {
  return expect_error(code, [&] { TextEncoder::load(folder.path()); });
}

TEST(BertCheckpoint, NamesTheTensorThatIsMissingOrMisshapen) {
  for (const char* name :
       {"embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"}) {
    TinyBert tiny;
    tiny.tensors.erase(name);
    const TemporaryFolder folder;
    tiny.write(folder);
    EXPECT_THAT(load_error(ErrorCode::kNotFound, folder), HasSubstr(name));
  }
  TinyBert tiny;
  tiny.random("encoder.layer.0.intermediate.dense.weight", {40, 23});
  const TemporaryFolder folder;
  tiny.write(folder);
  EXPECT_THAT(
      load_error(ErrorCode::kCorrupt, folder),
      AllOf(HasSubstr("model.safetensors"), HasSubstr("encoder.layer.0.intermediate.dense.weight"),
            HasSubstr("[40, 24]"), HasSubstr("[40, 23]")));
}

TEST(BertCheckpoint, RefusesATensorOfIntegers) {
  TinyBert tiny;
  tiny.tensors["encoder.layer.0.output.dense.bias"] = Tensor(DType::kInt32, {24});
  const TemporaryFolder folder;
  tiny.write(folder);
  EXPECT_THAT(load_error(ErrorCode::kUnsupported, folder),
              AllOf(HasSubstr("encoder.layer.0.output.dense.bias"), HasSubstr("int32")));
}

TEST(BertCheckpoint, CallsTruncatedFilesCorrupt) {
  TinyBert tiny;
  const TemporaryFolder folder;
  tiny.write(folder);
  const std::string whole = read_file(folder.path() + "/model.safetensors");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    folder.write("model.safetensors", whole.substr(0, size));
    EXPECT_THAT(load_error(ErrorCode::kCorrupt, folder), HasSubstr("model.safetensors"));
  }
}

TEST(BertCheckpoint, RefusesAVocabularyLargerThanItsTable) {
  TinyBert tiny;
  const TemporaryFolder folder;
  tiny.write(folder);
  folder.write("vocab.txt", TinyBert::vocab() + "z\n");
  EXPECT_THAT(load_error(ErrorCode::kCorrupt, folder),
              AllOf(HasSubstr("vocab_size"), HasSubstr("30")));
}

TEST(BertCheckpoint, NamesWhatAFolderLacks) {
  const TemporaryFolder empty;
  EXPECT_THAT(load_error(ErrorCode::kNotFound, empty), HasSubstr("config.json"));
  TinyBert tiny;
  const TemporaryFolder folder;
  tiny.write(folder);
  std::filesystem::remove(folder.path() + "/vocab.txt");
  EXPECT_THAT(load_error(ErrorCode::kNotFound, folder), HasSubstr("vocab.txt"));
  EXPECT_THROW(TextEncoder::load("/no/such/folder"), Error);
}

}  // namespace
}  // namespace stof::model
