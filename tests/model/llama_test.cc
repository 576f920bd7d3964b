// The LLaMA family against the logits of tools/make_golden_llama.py, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/llama_config.h"
#include "model/tiny_llama.h"
#include "stof/error.h"
#include "stof/text_generator.h"

namespace stof::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const LlamaGolden& golden() {
  static const auto* loaded = new LlamaGolden;
  return *loaded;
}

/// The error of any code, as text.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}

TextGenerator load_case(const std::string& name) {
  const TemporaryFolder folder;
  golden().write(folder, golden().at(name), {}, golden().weights(golden().at(name)));
  return TextGenerator::load(folder.path());
}

TEST(Llama, GivesTheLogitsOfTransformersUnderEveryField) {
  EXPECT_GE(golden().cases().size(), 20u);
  for (const auto& entry : golden().cases()) {
    const std::string name = entry.at("name");
    EXPECT_LT(
        relative_error(load_case(name).logits(golden().ids(), one_thread()), golden().logits(name)),
        kTolerance)
        << name;
  }
}

TEST(Llama, ScalesRopeAsTransformersDoes) {
  EXPECT_GE(golden().ropes().size(), 20u);
  for (const auto& entry : golden().ropes()) {
    const RopeConfig rope = read_rope(JsonFields(entry.at("config"), "c.json"));
    const std::vector<float> expected = entry.at("frequencies");
    const std::vector<float> frequencies = rope.frequencies(64);
    ASSERT_EQ(frequencies.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(frequencies[i], expected[i], 3e-6 * expected[i]) << entry.at("name") << i;
    const std::string name = entry.at("name");
    EXPECT_EQ(rope.bounded, name == "dynamic" || name.starts_with("longrope")) << name;
    EXPECT_NEAR(rope.attention_factor, entry.at("attention_factor").get<double>(), 1e-12)
        << entry.at("name");
  }
}

TEST(Llama, GivesTheSameWhereverThePromptIsCut) {
  for (const std::string name : {"base", "mistral"}) {
    const TextGenerator model = load_case(name);
    for (const std::int64_t chunk : {1, 4, 22}) {
      GenerateOptions options = one_thread();
      options.prefill_chunk = chunk;
      EXPECT_LT(relative_error(model.logits(golden().ids(), options), golden().logits(name)),
                kTolerance)
          << name << chunk;
    }
  }
}

TEST(Llama, CombinesItsOwnMaskWithTheCallers) {
  const TextGenerator base = load_case("base"), local = load_case("mistral");
  GenerateOptions window = one_thread();
  window.mask = mask::window(4, 0);  // the query and four keys before it, as Mistral's window of 5
  EXPECT_LT(relative_error(base.logits(golden().ids(), window), golden().logits("mistral")),
            kTolerance);
  GenerateOptions wide = one_thread();
  wide.mask = mask::window(9, 9);
  EXPECT_LT(relative_error(local.logits(golden().ids(), wide), golden().logits("mistral")),
            kTolerance);
  for (const char* text :
       {"sink(2) | window(3, 0)", "~window(1, 0) | window(0, 0)", "dilated(8, 2)"}) {
    GenerateOptions whole = one_thread(), cut = one_thread();
    whole.mask = cut.mask = mask::parse(text);
    cut.prefill_chunk = 3;
    const Tensor expected = base.logits(golden().ids(), whole);
    EXPECT_LT(relative_error(base.logits(golden().ids(), cut), expected), kTolerance) << text;
    EXPECT_GT(relative_error(expected, golden().logits("base")), 0.01) << text;
  }
}

/// Halves of each head become neighbours, as llama.cpp stores them.
Tensor interleaved(const Tensor& rows, std::int64_t head_dim) {
  Tensor result(DType::kFloat32, rows.shape());
  const std::int64_t count = rows.shape()[0], width = rows.size() / count;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t half = head_dim / 2, within = r % head_dim;
    const std::int64_t to = r - within + 2 * (within % half) + within / half;
    std::copy_n(rows.as<float>().data() + r * width, width, result.as<float>().data() + to * width);
  }
  return result;
}

std::string gguf_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> kParts = {
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"post_attention_layernorm", "ffn_norm"},
      {"input_layernorm", "attn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"}};
  for (const auto& [from, to] : kParts) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

/// A case without scaling as a GGUF file.
GgufWriter gguf_of(const std::string& name) {
  const json& entry = golden().at(name);
  const json& config = entry.at("config");
  const std::string arch = config.at("model_type");
  GgufWriter file;
  const auto integer = [&](const char* key, const char* field) {
    file.add(arch + "." + key, config.at(field).get<std::uint32_t>());
  };
  file.add("general.architecture", arch);
  integer("block_count", "num_hidden_layers");
  integer("context_length", "max_position_embeddings");
  integer("embedding_length", "hidden_size");
  integer("feed_forward_length", "intermediate_size");
  integer("attention.head_count", "num_attention_heads");
  integer("attention.head_count_kv", "num_key_value_heads");
  integer("attention.key_length", "head_dim");
  file.add(arch + ".attention.layer_norm_rms_epsilon", config.at("rms_norm_eps").get<float>());
  file.add(arch + ".rope.freq_base", config.at("rope_theta").get<float>());
  std::vector<std::string> tokens(50);
  const json tokenizer = tiny_tokenizer_json();
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) tokens[id] = token;
  std::vector<std::int32_t> types(50, 1);
  types[49] = 3;
  file.add("tokenizer.ggml.model", std::string("gpt2"));
  file.add("tokenizer.ggml.pre", std::string("gpt-2"));
  file.add("tokenizer.ggml.tokens", tokens);
  file.add("tokenizer.ggml.token_type", types);
  file.add("tokenizer.ggml.merges", std::vector<std::string>());
  file.add("tokenizer.ggml.eos_token_id", std::uint32_t{49});
  for (const auto& [hf, tensor] : golden().weights(entry)) {
    const bool turned =
        hf.find("q_proj") != std::string::npos || hf.find("k_proj") != std::string::npos;
    file.add_tensor(gguf_name(hf),
                    turned && arch == "llama"
                        ? interleaved(tensor, config.at("head_dim").get<std::int64_t>())
                        : tensor);
  }
  return file;
}

TEST(Llama, ReadsGgufFilesOfItsArchitectures) {
  const TemporaryFolder folder;
  for (const std::string name : {"base", "tied", "attention_bias", "mlp_bias", "heads", "qwen2"}) {
    folder.write("model.gguf", gguf_of(name).bytes());
    for (const std::string& path : {folder.path(), folder.path() + "/model.gguf"})
      EXPECT_LT(relative_error(TextGenerator::load(path).logits(golden().ids(), one_thread()),
                               golden().logits(name)),
                kTolerance)
          << name;
  }
}

TEST(Llama, HonoursRopeFactorsAndScalingOfGguf) {
  const TemporaryFolder folder;
  GgufWriter linear = gguf_of("base");
  linear.add("llama.rope.scaling.type", std::string("linear"));
  linear.add("llama.rope.scaling.factor", 4.0f);
  folder.write("linear.gguf", linear.bytes());
  EXPECT_LT(
      relative_error(
          TextGenerator::load(folder.path() + "/linear.gguf").logits(golden().ids(), one_thread()),
          golden().logits("rope linear")),
      kTolerance);
  GgufWriter factors = gguf_of("base");
  Tensor four(DType::kFloat32, {4});
  for (float& value : four.as<float>()) value = 4;
  factors.add_tensor("rope_freqs.weight", four);
  folder.write("factors.gguf", factors.bytes());
  EXPECT_LT(
      relative_error(
          TextGenerator::load(folder.path() + "/factors.gguf").logits(golden().ids(), one_thread()),
          golden().logits("rope linear")),
      kTolerance);
}

TEST(Llama, RefusesGgufFieldsItDoesNotUnderstand) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& key, const auto& value) {
    GgufWriter file = gguf_of("base");
    file.add(key, value);
    folder.write("x.gguf", file.bytes());
    return error_of([&] { TextGenerator::load(folder.path() + "/x.gguf"); });
  };
  EXPECT_THAT(refusal("llama.expert_count", 8U),
              AllOf(HasSubstr("Unsupported"), HasSubstr("expert_count")));
  EXPECT_THAT(refusal("llama.attention.sliding_window", 8U),
              AllOf(HasSubstr("Unsupported"), HasSubstr("llama.attention.sliding_window")));
  EXPECT_THAT(refusal("llama.rope.scaling.type", std::string("yarn")), HasSubstr("yarn"));
  EXPECT_THAT(refusal("llama.rope.dimension_count", 4U), HasSubstr("rope.dimension_count"));
  EXPECT_THAT(refusal("llama.vocab_size", 51U), AllOf(HasSubstr("Corrupt"), HasSubstr("[51, 24]")));
}

TEST(Llama, TakesAModelSavedWithoutItsHead) {
  const TemporaryFolder folder;
  const json& entry = golden().at("tied");
  golden().write(folder, entry, {}, golden().weights(entry), "");
  EXPECT_LT(relative_error(TextGenerator::load(folder.path()).logits(golden().ids(), one_thread()),
                           golden().logits("tied")),
            kTolerance);
}

TEST(Llama, RefusesTensorsThatDoNotFitTheConfig) {
  const TemporaryFolder folder;
  const json& base = golden().at("base");
  const auto refusal = [&](const json& changes,
                           const std::function<void(std::map<std::string, Tensor>&)>& change) {
    json config = base.at("config");
    config.update(changes);
    auto weights = golden().weights(base);
    change(weights);
    golden().write(folder, base, config, std::move(weights));
    return error_of([&] { TextGenerator::load(folder.path()); });
  };
  const auto keep = [](auto&) {};
  const std::string q = "model.layers.1.self_attn.q_proj";
  EXPECT_THAT(refusal({{"vocab_size", 51}}, keep),
              AllOf(HasSubstr("Corrupt"), HasSubstr("embed_tokens"), HasSubstr("[51, 24]"),
                    HasSubstr("[50, 24]")));
  EXPECT_THAT(
      refusal({{"num_hidden_layers", 2}}, keep),
      AllOf(HasSubstr("Corrupt"), HasSubstr("model.layers.2."), HasSubstr("number of layers")));
  EXPECT_THAT(refusal({{"num_hidden_layers", 4}}, keep),
              AllOf(HasSubstr("NotFound"), HasSubstr("layers.3")));
  EXPECT_THAT(
      refusal(json::object(), [&](auto& w) { w[q + ".bias"] = Tensor(DType::kFloat32, {48}); }),
      AllOf(HasSubstr("Corrupt"), HasSubstr(q + ".bias"), HasSubstr("attention_bias")));
  EXPECT_THAT(refusal({{"attention_bias", true}}, keep),
              AllOf(HasSubstr("NotFound"), HasSubstr("bias")));
  EXPECT_THAT(
      refusal(json::object(),
              [&](auto& w) {
                w[q + ".weight"] = Tensor(DType::kFloat32, {24, 48});
              }),
      AllOf(HasSubstr("Corrupt"), HasSubstr(q), HasSubstr("[48, 24]"), HasSubstr("[24, 48]")));
  EXPECT_THAT(refusal(json::object(),
                      [&](auto& w) {
                        w[q + ".weight"] = Tensor(DType::kInt32, {48, 24});
                      }),
              HasSubstr("Unsupported"));
  EXPECT_THAT(refusal(json::object(), [](auto& w) { w.erase("lm_head.weight"); }),
              AllOf(HasSubstr("NotFound"), HasSubstr("lm_head")));
  for (const std::uint64_t id : {std::uint64_t{50}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    EXPECT_THAT(refusal({{"eos_token_id", id}}, keep),
                AllOf(HasSubstr("Corrupt"), HasSubstr("eos_token_id")));
}

std::string config_refusal(const json& changes) {
  json config = golden().at("base").at("config");
  config.update(changes);
  return error_of([&] { parse_llama_config(config.dump(), "c.json"); });
}

TEST(LlamaConfig, RefusesWhatItDoesNotUnderstand) {
  for (const json& changes : std::vector<json>{
           {{"model_type", "gemma3"}},
           {{"hidden_act", "gelu"}},
           {{"pretraining_tp", 2}},
           {{"quantization_config", {{"bits", 4}}}},
           {{"sliding_window", 5}},
           {{"rope_interleaved", true}},
           {{"partial_rotary_factor", 0.5}},
           {{"use_qk_norm", true}},
           {{"num_local_experts", 8}},
           {{"attn_logit_softcapping", 50.0}},
           {{"logit_scale", 0.1}},
           {{"attention_chunk_size", 8}},
           {{"dual_chunk_attention_config", {{"chunk_size", 8}}}},
           {{"head_dim", 7}},
           {{"layer_types", {"sliding_attention"}}},
           {{"model_type", "mistral"}, {"attention_bias", true}},
           {{"model_type", "qwen2"},
            {"layer_types", {"chunked_attention", "full_attention", "full_attention"}}}}) {
    const std::string error = config_refusal(changes);
    EXPECT_THAT(error,
                AllOf(HasSubstr("Unsupported: c.json"), HasSubstr("expected"), HasSubstr("got")))
        << changes;
    EXPECT_THAT(error,
                HasSubstr(changes.items().begin().key() == "attention_bias" ? "attention_bias"
                          : changes.contains("layer_types")                 ? "layer_types"
                                                            : changes.items().begin().key()));
  }
}

TEST(LlamaConfig, RefusesRopeScalingsItDoesNotUnderstand) {
  const auto scaling = [](const json& value) { return config_refusal({{"rope_scaling", value}}); };
  EXPECT_THAT(scaling({{"rope_type", "su"}, {"factor", 4.0}}),
              AllOf(HasSubstr("Unsupported"), HasSubstr("su"), HasSubstr("\"yarn\"")));
  EXPECT_THAT(scaling({{"type", "dynamic"}}), AllOf(HasSubstr("Corrupt"), HasSubstr("factor")));
  EXPECT_THAT(scaling({{"type", "yarn"}}), AllOf(HasSubstr("Corrupt"), HasSubstr("factor")));
  EXPECT_THAT(scaling({{"type", "yarn"}, {"factor", 4.0}, {"low_freq_factor", 1.0}}),
              AllOf(HasSubstr("Unsupported"), HasSubstr("low_freq_factor")));
  EXPECT_THAT(scaling({{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", 1.0}, {"beta_slow", 2.0}}),
              AllOf(HasSubstr("Corrupt"), HasSubstr("beta_fast")));
  const json longrope = {{"type", "longrope"},
                         {"original_max_position_embeddings", 64},
                         {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                         {"long_factor", {2.0, 2.0, 2.0, 2.0}}};
  json shorter = longrope, odd = longrope;
  shorter["original_max_position_embeddings"] = 32;
  EXPECT_THAT(scaling(shorter),
              AllOf(HasSubstr("Unsupported"), HasSubstr("max_position_embeddings"),
                    HasSubstr("at most 32"), HasSubstr("longrope")));
  odd["short_factor"] = {1.0, 1.0};
  EXPECT_THAT(scaling(odd),
              AllOf(HasSubstr("Corrupt"), HasSubstr("short_factor"), HasSubstr("4 numbers")));
  odd["short_factor"] = {1.0, 0.0, 1.0, 1.0};
  EXPECT_THAT(scaling(odd), AllOf(HasSubstr("Corrupt"), HasSubstr("short_factor")));
  EXPECT_THAT(scaling({{"type", "linear"}}), AllOf(HasSubstr("Corrupt"), HasSubstr("factor")));
  EXPECT_THAT(scaling({{"type", "linear"}, {"factor", 2.0}, {"attention_factor", 2.0}}),
              HasSubstr("attention_factor"));
  EXPECT_THAT(scaling({{"type", "linear"}, {"rope_type", "default"}, {"factor", 2.0}}),
              HasSubstr("type"));
  EXPECT_THAT(scaling({{"rope_type", "llama3"},
                       {"factor", 2.0},
                       {"low_freq_factor", 4.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8}}),
              HasSubstr("high_freq_factor"));
  EXPECT_THAT(
      config_refusal({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5.0}}}}),
      AllOf(HasSubstr("Unsupported"), HasSubstr("rope_theta"), HasSubstr("rope_parameters")));
  EXPECT_THAT(
      config_refusal({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 100.0}}},
                      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      AllOf(HasSubstr("Unsupported"), HasSubstr("rope_scaling")));
}

TEST(LlamaConfig, RefusesFieldsThatAreMissingOrWrong) {
  EXPECT_THAT(config_refusal({{"hidden_size", nullptr}}),
              AllOf(HasSubstr("Corrupt"), HasSubstr("hidden_size")));
  EXPECT_THAT(config_refusal({{"num_key_value_heads", 4}}),
              AllOf(HasSubstr("Corrupt"), HasSubstr("divisor of 6")));
  EXPECT_THAT(config_refusal(
                  {{"head_dim", nullptr}, {"num_attention_heads", 5}, {"num_key_value_heads", 5}}),
              AllOf(HasSubstr("Corrupt"), HasSubstr("divisor of 24")));
  EXPECT_THAT(config_refusal({{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}}),
              HasSubstr("3 names"));
  EXPECT_THAT(config_refusal({{"model_type", "mistral"}, {"sliding_window", {4, 8}}}),
              HasSubstr("sliding_window"));
}

TEST(LlamaConfig, ReadsWindowsAndEndTokensAsTransformersDoes) {
  const auto parsed = [](const json& changes) {
    json config = golden().at("base").at("config");
    config.update(changes);
    return parse_llama_config(config.dump(), "c.json");
  };
  EXPECT_EQ(parsed({{"model_type", "mistral"}}).windows, std::vector<std::int64_t>(3, 4096));
  EXPECT_EQ(parsed({{"model_type", "mistral"}, {"sliding_window", nullptr}}).windows,
            std::vector<std::int64_t>(3, 0));
  EXPECT_EQ(parsed({{"model_type", "qwen2"}, {"sliding_window", 9}}).windows,
            std::vector<std::int64_t>(3, 0));
  EXPECT_EQ(
      parsed({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"max_window_layers", 2}})
          .windows,
      (std::vector<std::int64_t>{0, 0, 4096}));
  EXPECT_EQ(parsed({{"eos_token_id", {3, 5}}}).end_tokens, (std::vector<std::int32_t>{3, 5}));
  const TemporaryFolder folder;
  folder.write("config.json", golden().at("base").at("config").dump());
  folder.write(
      "generation_config.json",
      R"({"eos_token_id": 7, "repetition_penalty": 1.0, "suppress_tokens": null, "no_repeat_ngram_size": 3,
                   "bad_words_ids": [[5]], "do_sample": true})");
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_llama_config(folder.path()).end_tokens, std::vector<std::int32_t>{7});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("without effect here: no_repeat_ngram_size, bad_words_ids;"));
}

}  // namespace
}  // namespace stof::model
