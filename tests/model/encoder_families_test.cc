// RoBERTa, DistilBERT and ModernBERT: the small checkpoints of tools/make_golden_encoders.py
// against what transformers computes from them, and checkpoints that are wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/graph/interpret.h"
#include "model/bert_config.h"
#include "model/bert_graph.h"
#include "model/encoder.h"
#include "model/encoders_golden.h"
#include "model/expect_error.h"
#include "stof/error.h"
#include "stof/text_encoder.h"

namespace stof::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

EncodeOptions single_thread() {
  EncodeOptions options;
  options.num_threads = 1;
  return options;
}

std::string refusal_of(ErrorCode code, const TemporaryFolder& folder) {
  return expect_error(code, [&] { TextEncoder::load(folder.path()); });
}

TEST(EncoderFamilies, GiveTransformersStatesUnderEveryFieldThatChangesNumbers) {
  const EncodersGolden golden;
  for (const json& entry : golden.cases()) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const TemporaryFolder folder;
    golden.write(folder, entry);
    const TextEncoder encoder = TextEncoder::load(folder.path());
    const json& text = golden.tokenizer(entry);
    EXPECT_EQ(encoder.tokenize(text.at("text")).ids, text.at("ids"));
    // In one batch with others, each text gives what it gives alone.
    const std::vector<Tensor> states =
        encoder.encode_tokens({"a", text.at("text"), ""}, single_thread());
    EXPECT_LT(relative_difference(states[1], golden.expected("states", entry)), kRelative);
  }
}

TEST(EncoderFamilies, ReadTheNamesThatSentenceTransformersWritesAndNone) {
  const EncodersGolden golden;
  for (const std::string name : {"roberta", "distilbert", "modernbert"})
    for (const std::string prefix : {"", "0.auto_model."}) {
      const json& entry = golden.at(name);
      std::map<std::string, Tensor> renamed;
      const std::string usual = name == "modernbert" ? "model." : name + ".";
      for (auto& [own, tensor] : golden.weights(entry))
        renamed[own.starts_with(usual) ? prefix + own.substr(usual.size()) : own] =
            Tensor::copy_of(tensor.view());
      const TemporaryFolder folder;
      golden.write(folder, entry, entry.at("config"), renamed);
      const std::vector<Tensor> states =
          TextEncoder::load(folder.path())
              .encode_tokens({golden.tokenizer(entry).at("text")}, single_thread());
      EXPECT_LT(relative_difference(states[0], golden.expected("states", entry)), kRelative)
          << name << " " << prefix;
    }
}

TEST(EncoderFamilies, SayWhatTheyAreAndHowLongATextMayBe) {
  const EncodersGolden golden;
  const auto load = [&](const std::string& name, const json& changes = json::object()) {
    json config = golden.at(name).at("config");
    config.update(changes);
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), config, golden.weights(golden.at(name)));
    return TextEncoder::load(folder.path());
  };
  EXPECT_THAT(load("distilbert").describe(), HasSubstr("DistilBERT: 2 layers, hidden 24"));
  EXPECT_EQ(load("distilbert").max_tokens(), 32);
  const TextEncoder roberta = load("roberta", {{"pad_token_id", 4}});
  EXPECT_THAT(roberta.describe(), HasSubstr("RoBERTa: 2 layers, hidden 24"));
  EXPECT_EQ(roberta.max_tokens(), 27);  // 32 rows, of which 5 are for no token but padding
  const EncodedText cut = roberta.tokenize(std::string(40, 'q'), 9);
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.ids, (std::vector<std::int32_t>{0, 20, 20, 20, 20, 20, 20, 20, 2}));
  EXPECT_EQ(roberta.tokenize(" d").tokens, (std::vector<std::string>{"<s>", "\u0120d", "</s>"}));
  EXPECT_EQ(roberta.encode_tokens({std::string(40, 'q')})[0].shape(), Dims({27, 24}));
}

TEST(EncoderFamilies, TakeTheLimitsOfTheTokenizersFiles) {
  const EncodersGolden golden;
  const json& entry = golden.at("roberta");
  const TemporaryFolder folder;
  golden.write(folder, entry);
  json tokenizer = golden.tokenizer(entry).at("files").at("tokenizer.json");
  tokenizer["truncation"] = {{"direction", "Right"}, {"max_length", 12}};
  folder.write("tokenizer.json", tokenizer.dump());
  EXPECT_EQ(TextEncoder::load(folder.path()).max_tokens(), 12);
  folder.write("tokenizer_config.json", R"({"model_max_length": 20})");
  EXPECT_EQ(TextEncoder::load(folder.path()).max_tokens(), 20);
  folder.write("tokenizer_config.json", R"({"truncation_side": "left"})");
  EXPECT_THAT(refusal_of(ErrorCode::kUnsupported, folder), HasSubstr("truncation_side"));
  folder.write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_THAT(refusal_of(ErrorCode::kUnsupported, folder), HasSubstr("add_prefix_space"));
}

TEST(EncoderFamilies, RefuseByNameWhatTheyCannotHonour) {
  const EncodersGolden golden;
  const std::tuple<const char*, const char*, json, ErrorCode> kCases[] = {
      {"roberta", "position_embedding_type", "relative_key", ErrorCode::kUnsupported},
      {"roberta", "is_decoder", true, ErrorCode::kUnsupported},
      {"roberta", "hidden_act", "silu", ErrorCode::kUnsupported},
      {"roberta", "model_type", "xlm-roberta", ErrorCode::kUnsupported},
      {"roberta", "quantization_config", {{"bits", 8}}, ErrorCode::kUnsupported},
      {"roberta", "pad_token_id", 40, ErrorCode::kCorrupt},
      {"roberta", "pad_token_id", 31, ErrorCode::kCorrupt},  // no position left
      {"roberta", "max_position_embeddings", 2, ErrorCode::kCorrupt},
      {"distilbert", "activation", "silu", ErrorCode::kUnsupported},
      {"distilbert", "hidden_size", 48, ErrorCode::kUnsupported},
      {"distilbert", "num_hidden_layers", 3, ErrorCode::kUnsupported},
      {"distilbert", "num_attention_heads", 4, ErrorCode::kUnsupported},
      {"distilbert", "n_heads", 5, ErrorCode::kCorrupt},
      {"distilbert", "dim", nullptr, ErrorCode::kCorrupt},
      {"distilbert", "pruned_heads", {{"0", {1}}}, ErrorCode::kUnsupported},
      {"modernbert", "hidden_activation", "silu", ErrorCode::kUnsupported},
      {"modernbert", "classifier_activation", "silu", ErrorCode::kUnsupported},
      {"modernbert", "is_decoder", true, ErrorCode::kUnsupported},
      {"modernbert", "rope_scaling", {{"factor", 2}}, ErrorCode::kUnsupported},
      {"modernbert", "quantization_config", {{"bits", 8}}, ErrorCode::kUnsupported},
      {"modernbert", "head_dim", 16, ErrorCode::kUnsupported},
      {"modernbert", "num_attention_heads", 24, ErrorCode::kUnsupported},  // heads of size 1
      {"modernbert", "sliding_window", 4, ErrorCode::kUnsupported},
      {"modernbert", "layer_types", {"full_attention"}, ErrorCode::kCorrupt},
      {"modernbert", "layer_types", {"full_attention", 3, "x"}, ErrorCode::kUnsupported},
      {"modernbert", "global_attn_every_n_layers", 0, ErrorCode::kCorrupt},
      {"modernbert", "rope_parameters", {{"rope_theta", 10}}, ErrorCode::kUnsupported},
      {"modernbert", "rope_parameters", {{"full_attention", 1}}, ErrorCode::kCorrupt},
      {"modernbert", "local_attention", -1, ErrorCode::kCorrupt}};
  for (const auto& [name, field, value, code] : kCases) {
    json config = golden.at(name).at("config");
    config[field] = value;
    try {
      parse_bert_config(config.dump(), "dir/config.json");
      ADD_FAILURE() << name << " " << field;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("dir/config.json"), HasSubstr(field), HasSubstr("expected")));
    }
  }
}

TEST(EncoderFamilies, NameTheTensorThatIsMissingOrMisshapen) {
  const EncodersGolden golden;
  const std::pair<const char*, const char*> kCases[] = {
      {"roberta", "roberta.embeddings.position_embeddings.weight"},
      {"roberta", "roberta.encoder.layer.1.attention.self.key.bias"},
      {"distilbert", "distilbert.embeddings.word_embeddings.weight"},
      {"distilbert", "distilbert.transformer.layer.1.ffn.lin2.weight"},
      {"distilbert", "distilbert.transformer.layer.0.sa_layer_norm.bias"},
      {"modernbert", "model.embeddings.tok_embeddings.weight"},
      {"modernbert", "model.layers.1.attn_norm.weight"},
      {"modernbert", "model.layers.2.mlp.Wi.weight"}};
  for (const auto& [name, tensor] : kCases) {
    const json& entry = golden.at(name);
    auto weights = golden.weights(entry);
    const Dims shape = weights.at(tensor).shape();
    Dims wrong = shape;
    wrong[0] += 1;
    weights[tensor] = Tensor(DType::kFloat32, wrong);
    const TemporaryFolder folder;
    golden.write(folder, entry, entry.at("config"), weights);
    EXPECT_THAT(
        refusal_of(ErrorCode::kCorrupt, folder),
        AllOf(HasSubstr(tensor), HasSubstr(shape.to_string()), HasSubstr(wrong.to_string())));
    weights.erase(tensor);
    golden.write(folder, entry, entry.at("config"), weights);
    // Without the table that tells the prefix, the name is named without one.
    EXPECT_THAT(refusal_of(ErrorCode::kNotFound, folder),
                HasSubstr(std::string(tensor).substr(std::string(tensor).find('.') + 1)));
  }
}

// --- ModernBERT's own ---------------------------------------------------------------------------

TEST(ModernBert, TakesFieldsThatAreSaidTwiceWhereTheyAgree) {
  const EncodersGolden golden;
  const auto parse = [&](const json& changes) {
    json config = golden.at("modernbert").at("config");
    config.update(changes);
    return parse_bert_config(config.dump(), "c.json").modern;
  };
  const auto refusal = [&](const json& changes) {
    try {
      parse(changes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto thetas = [](double global, double local) -> json {
    return {{"rope_parameters",
             {{"full_attention", {{"rope_type", "default"}, {"rope_theta", global}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}}}};
  };
  EXPECT_EQ(parse(thetas(1000, 20)).local_theta, 20);
  EXPECT_EQ(parse(thetas(1000, 20)).global_theta, 1000);
  EXPECT_THAT(refusal(thetas(1000, 30)), HasSubstr("local_rope_theta"));
  EXPECT_THAT(refusal(thetas(999, 20)), HasSubstr("global_rope_theta"));
  json scaled = thetas(1000, 20);
  scaled["rope_parameters"]["full_attention"] = {
      {"rope_type", "linear"}, {"rope_theta", 1000.0}, {"factor", 2.0}};
  EXPECT_THAT(refusal(scaled), HasSubstr("rope_parameters"));
  const char *full = "full_attention", *local = "sliding_attention";
  EXPECT_EQ(parse({{"layer_types", {full, local, local}}}).is_local,
            (std::vector<bool>{false, true, true}));
  EXPECT_THAT(refusal({{"layer_types", {full, local, full}}}),
              HasSubstr("global_attn_every_n_layers"));
  EXPECT_EQ(parse({{"sliding_window", 3}}).local_radius, 3);
  EXPECT_EQ(parse({{"local_attention", nullptr}}).local_radius, 64);
  EXPECT_EQ(parse({{"local_attention", 7}}).local_radius, 3);
}

/// Local layers with everything else alike are global layers under the window as a mask.
TEST(ModernBert, CombinesItsWindowsWithTheUsersMask) {
  const EncodersGolden golden;
  const json& entry = golden.at("modernbert local alone");
  json config = entry.at("config");
  const TemporaryFolder local, global;
  golden.write(local, entry, config, golden.weights(entry));
  for (json& type : config["layer_types"]) type = "full_attention";
  config["global_rope_theta"] = config["local_rope_theta"];
  golden.write(global, entry, config, golden.weights(entry));
  const std::vector<std::string> texts = {golden.tokenizer(entry).at("text"), "abc ee!"};
  const auto states = [&](const TemporaryFolder& folder, const mask::Mask& mask) {
    EncodeOptions options = single_thread();
    options.mask = mask;
    return TextEncoder::load(folder.path()).encode_tokens(texts, options);
  };
  const mask::Mask window = mask::window(3, 3), other = mask::window(1, 7) | mask::global(1, 1);
  for (const std::size_t text : {0u, 1u}) {
    EXPECT_LT(
        relative_difference(states(local, mask::all())[text], states(global, window)[text].view()),
        kRelative);
    EXPECT_LT(relative_difference(states(local, other)[text],
                                  states(global, window & other)[text].view()),
              kRelative);
  }
  EXPECT_GT(relative_difference(states(local, other)[0], states(local, mask::all())[0].view()),
            1e-3);
}

/// In 16 bits both halves of the gated layer are one product, as on a GPU.
TEST(ModernBert, HasAGraphInSixteenBits) {
  const EncodersGolden golden;
  for (const std::string name : {"modernbert", "modernbert mlp_bias"}) {
    const json& entry = golden.at(name);
    const TemporaryFolder folder;
    golden.write(folder, entry);
    const BertConfig config = load_bert_config(folder.path());
    const BertWeights weights = load_bert_weights(Checkpoint::open(folder.path()), config);
    const std::vector<std::int32_t> ids = golden.tokenizer(entry).at("ids");
    PackedTexts texts;
    texts.add(ids);
    const graph::Graph graph = build_bert_graph(config, texts.num_tokens(), DType::kFloat16);
    EXPECT_NE(graph.find("layer.1.gate_up"), graph::kNoId);
    const exec::Batch batch = texts.batch(mask::all(), config);
    cpu::GraphOperands operands;
    operands.mask = batch.mask, operands.more_masks = batch.more_masks;
    for (const auto& [input, view] : batch.inputs) operands.values[graph.find(input)] = view;
    const GraphWeights bound = bind_bert_weights(graph, weights);
    operands.values.insert(bound.values.begin(), bound.values.end());
    const cpu::GraphResults results = cpu::interpret_graph(graph, operands);
    const Tensor found =
        Tensor::converted(results.at(graph.live_outs()[0]).view(), DType::kFloat32);
    // float16 rounds at about ten places a layer, and gates multiply what was rounded.
    EXPECT_LT(relative_difference(found, golden.expected("states", entry)), 3e-2) << name;
  }
}

// --- masked tokens ------------------------------------------------------------------------------

TEST(FillMask, GivesTransformersProbabilitiesUnderEveryFieldThatChangesNumbers) {
  const EncodersGolden golden;
  for (const json& entry : golden.cases()) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const TemporaryFolder folder;
    golden.write(folder, entry);
    const TensorView expected = golden.expected("logits", entry);
    const std::int64_t vocab = expected.shape[1];
    const std::string text = golden.tokenizer(entry).at("text");
    const auto filled =
        TextEncoder::load(folder.path()).fill_mask({text, text}, vocab, single_thread());
    ASSERT_EQ(filled.size(), 2u);
    ASSERT_EQ(static_cast<std::int64_t>(filled[1].size()), expected.shape[0]);
    for (std::size_t m = 0; m < filled[1].size(); ++m) {
      const auto* logits =
          static_cast<const float*>(expected.data) + static_cast<std::int64_t>(m) * vocab;
      double sum = 0;
      for (std::int64_t id = 0; id < vocab; ++id) sum += std::exp(logits[id]);
      ASSERT_EQ(static_cast<std::int64_t>(filled[1][m].candidates.size()), vocab);
      float last = 1;
      for (const TokenCandidate& found : filled[1][m].candidates) {
        EXPECT_LE(found.probability, last);
        last = found.probability;
        const double wanted = std::exp(logits[found.id]) / sum;
        EXPECT_NEAR(found.probability / wanted, 1, 5e-5) << found.token;
      }
    }
  }
}

TEST(FillMask, SaysWhereTheMaskIsAndHowTokensAreSpelled) {
  const EncodersGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("roberta"));
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const auto filled = encoder.fill_mask({"a <mask>", "<mask><mask> d"}, 40, single_thread());
  ASSERT_EQ(filled[0].size(), 1u);
  EXPECT_EQ(filled[0][0].position, 3);  // <s> a \u0120 <mask>
  ASSERT_EQ(filled[1].size(), 2u);
  EXPECT_EQ(filled[1][1].position, 2);
  std::map<std::int32_t, std::pair<std::string, std::string>> spelled;
  for (const TokenCandidate& candidate : filled[0][0].candidates)
    spelled[candidate.id] = {candidate.token, candidate.text};
  EXPECT_EQ(spelled[34], std::pair(std::string("\u0120d"), std::string(" d")));
  EXPECT_EQ(spelled[1], std::pair(std::string("<pad>"), std::string("<pad>")));
  EXPECT_EQ(encoder.fill_mask({"a <mask>"})[0][0].candidates.size(), 5u);
}

TEST(FillMask, RefusesWhatHasNoMaskOrNoHead) {
  const EncodersGolden golden;
  const auto refusal = [&](const TemporaryFolder& folder, ErrorCode code, const std::string& text,
                           std::int64_t count = 5, std::int64_t max_tokens = 0) {
    EncodeOptions options = single_thread();
    options.max_tokens = max_tokens;
    try {
      TextEncoder::load(folder.path()).fill_mask({"[MASK]", text}, count, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const json& entry = golden.at("bert");
  const TemporaryFolder folder;
  golden.write(folder, entry);
  EXPECT_THAT(refusal(folder, ErrorCode::kInvalidArgument, "a b"),
              AllOf(HasSubstr("text 2"), HasSubstr("[MASK]")));
  EXPECT_THAT(refusal(folder, ErrorCode::kInvalidArgument, "a b c [MASK]", 5, 5),
              HasSubstr("text 2"));  // cut before it
  EXPECT_THAT(refusal(folder, ErrorCode::kInvalidArgument, "[MASK]", 0), HasSubstr("count"));
  auto weights = golden.weights(entry);
  weights["cls.predictions.bias"] = Tensor(DType::kFloat32, {41});
  golden.write(folder, entry, entry.at("config"), weights);
  EXPECT_THAT(refusal(folder, ErrorCode::kCorrupt, "[MASK]"),
              AllOf(HasSubstr("cls.predictions.bias"), HasSubstr("[40]"), HasSubstr("[41]")));
  for (const std::string name :
       {"cls.predictions.bias", "cls.predictions.transform.dense.weight"}) {
    weights.erase(name);
    golden.write(folder, entry, entry.at("config"), weights);
    EXPECT_THAT(refusal(folder, ErrorCode::kNotFound, "[MASK]"), HasSubstr(name));
  }
  folder.write("tokenizer_config.json", R"({"mask_token": "[GAP]"})");
  EXPECT_THAT(refusal(folder, ErrorCode::kUnsupported, "[MASK]"), HasSubstr("mask token"));
}

}  // namespace
}  // namespace stof::model
