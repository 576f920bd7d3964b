// GPT-2 checkpoints against transformers' logits (tools/make_golden_gpt2.py).

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/thread_scope.h"
#include "exec/cpu_session.h"
#include "model/gpt2_model.h"
#include "model/tiny_llama.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Of float32 against float64: by compiler and kernels 1e-6 to 1.5e-5 was seen, the most with
/// scores that are not scaled, whose softmax is sharp. A field that is ignored gives 10 times as
/// much.
constexpr double kGpt2Tolerance = 3e-5;

const LlamaGolden& gpt2_golden() {
  static const LlamaGolden files("gpt2_golden");
  return files;
}

TEST(Gpt2, GivesTheLogitsOfTransformers) {
  for (const auto& entry : gpt2_golden().cases()) {
    const std::string name = entry.at("name");
    const TemporaryFolder folder;
    gpt2_golden().write(folder, entry, {}, gpt2_golden().weights(entry));
    const TextGenerator model = TextGenerator::load(folder.path());
    GenerateOptions options = one_thread();
    for (const std::int64_t chunk : {512, 5}) {
      options.prefill_chunk = chunk;
      EXPECT_LT(
          relative_error(model.logits(gpt2_golden().ids(), options), gpt2_golden().logits(name)),
          kGpt2Tolerance)
          << name << ", chunks of " << chunk;
    }
    // Every field counts: without it the logits are others.
    if (name != "base") {
      EXPECT_GT(relative_error(gpt2_golden().logits("base"), gpt2_golden().logits(name)),
                10 * kGpt2Tolerance)
          << name;
    }
  }
}

TEST(Gpt2, ReadsNamesWithoutPrefixAndWritesText) {
  const nlohmann::json& entry = gpt2_golden().at("base");
  std::map<std::string, Tensor> bare;
  for (auto& [name, tensor] : gpt2_golden().weights(entry))
    bare[name.substr(std::string("transformer.").size())] = std::move(tensor);
  nlohmann::json config = entry.at("config");
  config["eos_token_id"] = 49;
  const TemporaryFolder folder;
  gpt2_golden().write(folder, entry, config, std::move(bare));
  const TextGenerator model = TextGenerator::load(folder.path());
  EXPECT_THAT(model.describe(), AllOf(HasSubstr("gpt2: 2 layers"), HasSubstr("64 positions")));
  EXPECT_LT(
      relative_error(model.logits(gpt2_golden().ids(), one_thread()), gpt2_golden().logits("base")),
      kGpt2Tolerance);
  GenerateOptions options = one_thread();
  options.max_tokens = 1000;
  options.prefill_chunk = 3;
  const GeneratedText result = model.generate("hello", options);
  std::vector<std::int32_t> ids = model.tokenize("hello");
  for (const std::int32_t id : result.ids) {
    const Tensor logits = model.logits(ids, one_thread());
    const auto last = logits.as<float>().last(50);
    ASSERT_EQ(id, std::max_element(last.begin(), last.end()) - last.begin()) << ids.size();
    ids.push_back(id);
  }
  EXPECT_EQ(result.reason, ids.back() == 49 ? StopReason::kEndToken : StopReason::kPositions);
}

TEST(Gpt2, FillsTheVocabularyUpWhereAsked) {
  const nlohmann::json& entry = gpt2_golden().at("untied");
  const TemporaryFolder folder;
  gpt2_golden().write(folder, entry, {}, gpt2_golden().weights(entry));
  const auto model =
      make_gpt2_model(Checkpoint::open(folder.path()), load_gpt2_config(folder.path()));
  const auto graph_of = [&](std::int64_t rows) {
    return model->graph(rows, DType::kFloat32, {.pad_vocabulary = true});
  };
  const graph::Graph graph = graph_of(1);
  const GraphWeights weights = model->weights(graph);
  exec::CpuSession session(graph_of, std::make_shared<exec::CpuWeights>(graph, weights.values));
  const std::vector<std::int32_t> ids = gpt2_golden().ids();
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<std::int32_t>(i));
  const auto rows = static_cast<std::int64_t>(ids.size());
  exec::Batch batch;
  batch.mask = model->masks(mask::all()).at(0);
  batch.offsets = {0, rows};
  batch.inputs = {{"ids", {ids.data(), DType::kInt32, {rows}}},
                  {"positions", {positions.data(), DType::kInt32, {rows}}}};
  const cpu::ThreadScope one(1);
  const Tensor logits = session.run(batch);
  ASSERT_EQ(logits.shape(), Dims({rows, 56}));
  TensorView known = logits.view();
  known.shape = {rows, 50};
  EXPECT_LT(relative_error(Tensor::copy_of(known), gpt2_golden().logits("untied")), kGpt2Tolerance);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 50; c < 56; ++c)
      EXPECT_EQ(logits.as<float>()[static_cast<std::size_t>(r * 56 + c)], 0);
}

TEST(Gpt2, RefusesWhatItDoesNotHonour) {
  const auto refusal = [](const nlohmann::json& change) {
    nlohmann::json config = gpt2_golden().at("base").at("config");
    config.update(change);
    try {
      parse_gpt2_config(config.dump(), "config.json");
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refusal(nlohmann::json::object()), "nothing was thrown");
  EXPECT_EQ(refusal({{"reorder_and_upcast_attn", true}}), "nothing was thrown");
  for (const auto& [name, value] :
       std::map<std::string, nlohmann::json>{{"scale_attn_by_inverse_layer_idx", true},
                                             {"add_cross_attention", true},
                                             {"quantization_config", {{"bits", 4}}},
                                             {"pruned_heads", {{"0", {1}}}},
                                             {"activation_function", "tanh"},
                                             {"model_type", "gpt_neo"}})
    EXPECT_THAT(refusal({{name, value}}),
                AllOf(HasSubstr("Unsupported: config.json: " + name), HasSubstr("expected")));
  for (const auto& [name, value] : std::map<std::string, nlohmann::json>{
           {"n_head", 5}, {"n_layer", 0}, {"n_embd", "24"}, {"layer_norm_epsilon", -1}})
    EXPECT_THAT(refusal({{name, value}}), HasSubstr("Corrupt: config.json: " + name));

  const TemporaryFolder folder;
  const nlohmann::json& entry = gpt2_golden().at("base");
  nlohmann::json fewer = entry.at("config");
  fewer["n_layer"] = 1;
  gpt2_golden().write(folder, entry, fewer, gpt2_golden().weights(entry));
  EXPECT_THROW(
      {
        try {
          TextGenerator::load(folder.path());
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), AllOf(HasSubstr("h.1.ln_1.weight"), HasSubstr("n_layer")));
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace stof::model
