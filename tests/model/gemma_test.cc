// Gemma 3 against the logits of tools/make_golden_gemma.py, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model/expect_error.h"
#include "model/gemma_config.h"
#include "model/gemma_model.h"
#include "model/tiny_llama.h"
#include "stof/error.h"
#include "stof/text_generator.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const LlamaGolden& gemma_golden() {
  static const auto* loaded = new LlamaGolden("gemma_golden");
  return *loaded;
}

TextGenerator load_gemma(const std::string& name, const nlohmann::json& config = {},
                         const std::string& prefix = "model.") {
  const TemporaryFolder folder;
  const nlohmann::json& entry = gemma_golden().at(name);
  gemma_golden().write(folder, entry, config, gemma_golden().weights(entry), prefix);
  return TextGenerator::load(folder.path());
}

double gemma_error(const TextGenerator& model, const std::string& name,
                   const GenerateOptions& options = one_thread()) {
  return relative_error(model.logits(gemma_golden().ids(), options), gemma_golden().logits(name));
}

TEST(Gemma, GivesTheLogitsOfTransformersUnderEveryField) {
  EXPECT_GE(gemma_golden().cases().size(), 16u);
  for (const auto& entry : gemma_golden().cases()) {
    const std::string name = entry.at("name");
    EXPECT_LT(gemma_error(load_gemma(name), name), kTolerance) << name;
  }
}

TEST(Gemma, GivesTheSameWhereverThePromptIsCut) {
  const TextGenerator model = load_gemma("base");
  for (const std::int64_t chunk : {1, 4, 22}) {
    GenerateOptions options = one_thread();
    options.prefill_chunk = chunk;
    EXPECT_LT(gemma_error(model, "base", options), kTolerance) << chunk;
  }
}

TEST(Gemma, ReadsTheTextModelOfOneThatSeesImages) {
  nlohmann::json text = gemma_golden().at("base").at("config");
  const nlohmann::json whole = {{"model_type", "gemma3"},
                                {"text_config", text},
                                {"vision_config", {{"model_type", "siglip_vision_model"}}},
                                {"eos_token_id", {1, 49}}};
  for (const char* prefix : {"language_model.model.", "model.language_model."})
    EXPECT_LT(gemma_error(load_gemma("base", whole, prefix), "base"), kTolerance) << prefix;
  EXPECT_THAT(parse_gemma_config(whole.dump(), "c.json").end_tokens, testing::ElementsAre(1, 49));
}

std::string gguf_gemma_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> kParts = {
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"post_attention_layernorm", "post_attention_norm"},
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

/// A case as a GGUF file, with a byte for a token and three control tokens.
GgufWriter gguf_of_gemma(const std::string& name) {
  const nlohmann::json& entry = gemma_golden().at(name);
  const nlohmann::json& config = entry.at("config");
  GgufWriter file;
  const auto integer = [&](const char* key, const char* field) {
    file.add(std::string("gemma3.") + key, config.at(field).get<std::uint32_t>());
  };
  file.add("general.architecture", std::string("gemma3"));
  integer("block_count", "num_hidden_layers");
  integer("context_length", "max_position_embeddings");
  integer("embedding_length", "hidden_size");
  integer("feed_forward_length", "intermediate_size");
  integer("attention.head_count", "num_attention_heads");
  integer("attention.head_count_kv", "num_key_value_heads");
  integer("attention.key_length", "head_dim");
  integer("attention.value_length", "head_dim");
  integer("attention.sliding_window", "sliding_window");
  integer("attention.sliding_window_pattern", "sliding_window_pattern");
  file.add("gemma3.attention.layer_norm_rms_epsilon", config.at("rms_norm_eps").get<float>());
  file.add("gemma3.rope.freq_base", config.at("rope_theta").get<float>());
  file.add("gemma3.rope.freq_base_swa", config.at("rope_local_base_freq").get<float>());
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<std::int32_t> types = {3, 3, 3, 3};
  for (int i = 4; i < 50; ++i) {
    tokens.push_back(std::string(1, static_cast<char>('A' + i - 4)));
    types.push_back(1);
  }
  file.add("tokenizer.ggml.model", std::string("llama"));
  file.add("tokenizer.ggml.tokens", tokens);
  file.add("tokenizer.ggml.token_type", types);
  file.add("tokenizer.ggml.scores", std::vector<std::int32_t>(50, 0));
  file.add("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  file.add("tokenizer.ggml.bos_token_id", std::uint32_t{2});
  file.add("tokenizer.ggml.unknown_token_id", std::uint32_t{3});
  for (auto& [hf, tensor] : gemma_golden().weights(entry)) {
    Tensor stored = Tensor::copy_of(tensor.view());
    if (hf.find("norm.weight") != std::string::npos)
      for (float& value : stored.as<float>()) value += 1;
    file.add_tensor(gguf_gemma_name(hf), stored);
  }
  return file;
}

TEST(Gemma, ReadsGgufFiles) {
  const TemporaryFolder folder;
  const auto load = [&](GgufWriter file) {
    folder.write("model.gguf", file.bytes());
    return TextGenerator::load(folder.path() + "/model.gguf");
  };
  // No field of GGUF says what attention divides by: it is the size of a head.
  nlohmann::json config = gemma_golden().at("base").at("config");
  config["query_pre_attn_scalar"] = 8;
  const Tensor expected = load_gemma("base", config).logits(gemma_golden().ids(), one_thread());
  const TextGenerator model = load(gguf_of_gemma("base"));
  EXPECT_LT(relative_error(model.logits(gemma_golden().ids(), one_thread()), expected), kTolerance);
  EXPECT_THAT(model.tokenize("AC"), testing::ElementsAre(2, 3, 4, 6));  // no blank is in it
  EXPECT_THAT(model.describe(),
              AllOf(HasSubstr("gemma3: 3 layers, 2 of them local"), HasSubstr("window 5")));

  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  GgufWriter linear = gguf_of_gemma("base");
  linear.add("gemma3.rope.scaling.type", std::string("linear"));
  linear.add("gemma3.rope.scaling.factor", 8.0f);
  EXPECT_LT(relative_error(load(linear).logits(gemma_golden().ids(), one_thread()),
                           load_gemma("base", config).logits(gemma_golden().ids(), one_thread())),
            kTolerance);
  GgufWriter capped = gguf_of_gemma("base");
  capped.add("gemma3.final_logit_softcapping", 30.0f);
  EXPECT_THAT(expect_error(ErrorCode::kUnsupported, [&] { load(capped); }),
              HasSubstr("gemma3.final_logit_softcapping"));
}

TEST(Gemma, RefusesWhatItDoesNotUnderstand) {
  const auto refusal = [](const nlohmann::json& changes, ErrorCode code) {
    nlohmann::json config = gemma_golden().at("base").at("config");
    config.update(changes);
    return expect_error(code, [&] { parse_gemma_config(config.dump(), "c.json"); });
  };
  for (const nlohmann::json& changes : std::vector<nlohmann::json>{
           {{"model_type", "gemma2"}},
           {{"hidden_activation", "silu"}},
           {{"attn_logit_softcapping", 50.0}},
           {{"final_logit_softcapping", 30.0}},
           {{"use_bidirectional_attention", true}},
           {{"attention_bias", true}},
           {{"quantization_config", {{"bits", 4}}}},
           {{"head_dim", 7}},
           {{"layer_types", {"chunked_attention", "full_attention", "full_attention"}}}})
    EXPECT_THAT(refusal(changes, ErrorCode::kUnsupported),
                AllOf(HasSubstr("c.json"), HasSubstr(changes.items().begin().key())));
  for (const nlohmann::json& changes :
       std::vector<nlohmann::json>{{{"num_key_value_heads", 3}},
                                   {{"layer_types", {"full_attention"}}},
                                   {{"sliding_window", 0}},
                                   {{"query_pre_attn_scalar", 0}},
                                   {{"hidden_size", "24"}}})
    EXPECT_THAT(refusal(changes, ErrorCode::kCorrupt),
                AllOf(HasSubstr("c.json"), HasSubstr(changes.items().begin().key())));

  nlohmann::json fewer = gemma_golden().at("base").at("config");
  fewer["num_hidden_layers"] = 2;
  EXPECT_THAT(expect_error(ErrorCode::kCorrupt, [&] { load_gemma("base", fewer); }),
              AllOf(HasSubstr("model.layers.2."), HasSubstr("number of layers")));
  fewer["num_hidden_layers"] = 4;
  EXPECT_THAT(expect_error(ErrorCode::kNotFound, [&] { load_gemma("base", fewer); }),
              HasSubstr("layers.3"));
}

}  // namespace
}  // namespace stof::model
