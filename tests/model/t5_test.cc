// T5 checkpoints against transformers (tools/make_golden_t5.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "backend/cpu/graph/interpret.h"
#include "backend/cpu/thread_scope.h"
#include "model/expect_error.h"
#include "model/seq2seq.h"
#include "model/t5_graph.h"
#include "model/tiny_llama.h"
#include "model/tiny_t5.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const T5Golden& t5_golden() {
  static const T5Golden golden;
  return golden;
}

std::unique_ptr<const Seq2SeqModel> read_t5(const TemporaryFolder& folder) {
  return make_t5_model(Checkpoint::open(folder.path()), load_t5_config(folder.path()));
}

/// A model and one text that it has read.
class ReadText {
 public:
  ReadText(const Seq2Seq& model, std::span<const std::int32_t> source,
           const mask::MaskSet& mask = {})
      : lease_(model.start({static_cast<std::int64_t>(source.size())}, 300, kLogitRows)) {
    states = lease_.encode({source}, mask, timing_, /*wanted=*/true);
  }

  /// Logits after each.
  Tensor forward(std::span<const std::int32_t> ids) {
    return lease_.forward({{0, ids, static_cast<std::int64_t>(ids.size())}}, timing_);
  }

  /// Logits after every token of `ids`, read in parts of `chunk`.
  Tensor logits(std::span<const std::int32_t> ids, std::size_t chunk) {
    Tensor all;
    std::size_t done = 0;
    for (std::size_t at = 0; at < ids.size(); at += chunk) {
      const Tensor part = forward(ids.subspan(at, std::min(chunk, ids.size() - at)));
      const std::int64_t width = part.shape()[1];
      if (all.empty())
        all = Tensor(DType::kFloat32, {static_cast<std::int64_t>(ids.size()), width});
      std::ranges::copy(part.as<float>(),
                        all.as<float>().begin() + static_cast<std::ptrdiff_t>(done));
      done += part.as<float>().size();
    }
    return all;
  }

  Tensor states;

 private:
  static constexpr std::int64_t kLogitRows = 16;
  Seq2Seq::Lease lease_;
  exec::RunTiming timing_;
};

std::int32_t largest_of(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

TEST(T5, GivesTheStatesAndLogitsOfTransformers) {
  const cpu::ThreadScope one(1);
  const std::vector<std::int32_t> source = t5_golden().source();
  const nlohmann::json& base = t5_golden().at("base");
  for (const nlohmann::json& entry : t5_golden().cases()) {
    const std::string name = entry.at("name");
    const TemporaryFolder folder;
    t5_golden().write(folder, entry);
    const Seq2Seq model(read_t5(folder));
    const std::vector<std::int32_t> target = t5_golden().target(entry);
    const Tensor expected = t5_golden().logits(entry);
    for (const std::size_t chunk : {std::size_t{100}, std::size_t{5}}) {
      ReadText text(model, source);
      EXPECT_LT(relative_error(text.states, t5_golden().encoded(entry)), kTolerance) << name;
      EXPECT_LT(relative_error(text.logits(target, chunk), expected), kTolerance)
          << name << ", parts of " << chunk;
    }
    // Every field counts: without it the logits are others.
    if (name != "base") {
      EXPECT_GT(relative_error(t5_golden().logits(base), expected), 10 * kTolerance) << name;
    }
  }
}

TEST(T5, WritesTheIdsOfTransformers) {
  const cpu::ThreadScope one(1);
  for (const nlohmann::json& entry : t5_golden().cases()) {
    const TemporaryFolder folder;
    t5_golden().write(folder, entry);
    const Seq2Seq model(read_t5(folder));
    ReadText text(model, t5_golden().source());
    std::vector<std::int32_t> written = {model.facts().start_token};
    const auto expected = entry.at("written").get<std::vector<std::int32_t>>();
    while (written.size() <= expected.size())
      written.push_back(largest_of(text.forward(std::span(written).last(1)).as<float>()));
    written.erase(written.begin());
    EXPECT_EQ(written, expected) << entry.at("name");
  }
}

TEST(T5, GivesTextsOfABatchWhatItGivesEachAlone) {
  const cpu::ThreadScope one(1);
  const TemporaryFolder folder;
  t5_golden().write(folder, t5_golden().at("gated-gelu"));
  const Seq2Seq model(read_t5(folder));
  std::vector<std::int32_t> longest;
  for (std::int32_t i = 0; i < 300; ++i) longest.push_back(2 + i * 7 % 38);
  const std::vector<std::span<const std::int32_t>> texts = {std::span(longest).first(3), longest,
                                                            std::span(longest).subspan(10, 40)};
  exec::RunTiming timing;
  auto lease = model.start({3, 300, 40}, 10);
  const Tensor states = lease.encode(texts, {}, timing, /*wanted=*/true);
  std::vector<std::int32_t> last(3, model.facts().start_token);
  std::list<ReadText> alone;
  std::int64_t first = 0;
  for (const auto& text : texts) {
    alone.emplace_back(model, text);
    const Tensor& mine = alone.back().states;
    TensorView part = states.view();
    part.shape[0] = mine.shape()[0];
    part.data = static_cast<const float*>(part.data) + first * part.strides[0];
    EXPECT_LT(relative_error(Tensor::copy_of(part), mine), kTolerance);
    first += mine.shape()[0];
  }
  for (int step = 0; step < 12; ++step) {
    // The second text is over after six tokens.
    std::vector<DecoderSequences::Part> parts;
    for (std::int64_t i = 0; i < 3; ++i)
      if (step < 6 || i != 1)
        parts.push_back({i, std::span(last).subspan(static_cast<std::size_t>(i), 1)});
    const Tensor together = lease.forward(parts, timing);
    const auto width = static_cast<std::size_t>(together.shape()[1]);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto i = static_cast<std::size_t>(parts[p].sequence);
      const auto row = together.as<float>().subspan(p * width, width);
      Tensor mine(DType::kFloat32, {1, together.shape()[1]});
      std::ranges::copy(row, mine.as<float>().begin());
      EXPECT_LT(
          relative_error(
              mine,
              std::next(alone.begin(), parts[p].sequence)->forward(std::span(last).subspan(i, 1))),
          kTolerance)
          << "text " << i << ", step " << step;
      last[i] = largest_of(row);
    }
  }
}

TEST(T5, CombinesAMaskWithTheEncoders) {
  const cpu::ThreadScope one(1);
  const TemporaryFolder folder;
  t5_golden().write(folder, t5_golden().at("base"));
  const Seq2Seq model(read_t5(folder));
  const std::vector<std::int32_t> source = t5_golden().source();
  // Where no token sees a later one, what follows a text changes nothing of it.
  const ReadText whole(model, source, mask::causal());
  const ReadText begun(model, std::span(source).first(7), mask::causal());
  TensorView part = std::as_const(whole.states).view();
  part.shape[0] = 7;
  EXPECT_LT(relative_error(Tensor::copy_of(part), begun.states), kTolerance);
  EXPECT_GT(relative_error(whole.states, t5_golden().encoded(t5_golden().at("base"))), 1e-3);
}

/// The decoder's logits for one pass over `target`, by the interpreter of graphs.
Tensor interpreted(const Seq2SeqModel& model, DType dtype, const std::vector<std::int32_t>& source,
                   const std::vector<std::int32_t>& target, double* largest) {
  Seq2SeqGraphOptions options;
  options.cross_cache_size = options.cache_size = 256;
  const auto view = [](const std::vector<std::int32_t>& ids) {
    return TensorView(ids.data(), DType::kInt32, {static_cast<std::int64_t>(ids.size())});
  };
  const auto note_largest = [&](const graph::Graph& graph, const cpu::GraphResults& results) {
    for (const auto& [id, tensor] : results) {
      if (!graph.value(id).name.ends_with("_residual")) continue;
      const Tensor wide = Tensor::converted(tensor.view(), DType::kFloat32);
      for (const float x : wide.as<float>())
        *largest = std::max(*largest, std::isnan(x) ? INFINITY : std::abs(double{x}));
    }
  };
  const auto places = [](std::size_t count) {
    std::vector<std::int32_t> rows(count);
    for (std::size_t i = 0; i < count; ++i) rows[i] = static_cast<std::int32_t>(i);
    return rows;
  };
  const auto source_slots = places(source.size()), target_slots = places(target.size());
  std::map<std::string, Tensor> caches;
  const auto operands_of = [&](const graph::Graph& graph, const GraphWeights& weights,
                               const std::vector<std::int32_t>& ids,
                               const std::vector<std::int32_t>& slots) {
    cpu::GraphOperands operands;
    operands.values = weights.values;
    operands.values[graph.find("ids")] = view(ids);
    operands.values[graph.find("slots")] = view(slots);
    for (const graph::ValueId id : exec::states_of(graph)) {
      const graph::Value& state = graph.value(id);
      const auto [cache, is_new] = caches.try_emplace(state.name, state.dtype, state.shape);
      operands.values[id] = std::as_const(cache->second).view();
    }
    return operands;
  };
  const graph::Graph encoder =
      model.encoder_graph(static_cast<std::int64_t>(source.size()), dtype, options);
  const GraphWeights encoder_weights = model.encoder_weights(encoder);
  cpu::GraphResults read =
      interpret_graph(encoder, operands_of(encoder, encoder_weights, source, source_slots));
  note_largest(encoder, read);
  for (auto& [id, tensor] : read)
    if (encoder.value(id).overwrites != graph::kNoId)
      caches[encoder.value(encoder.value(id).overwrites).name] = std::move(tensor);
  const graph::Graph decoder =
      model.decoder_graph(static_cast<std::int64_t>(target.size()), dtype, options);
  const GraphWeights decoder_weights = model.decoder_weights(decoder);
  cpu::GraphOperands operands = operands_of(decoder, decoder_weights, target, target_slots);
  operands.mask = mask::causal();
  operands.more_masks = {mask::all()};
  operands.cache = {256, {{0}}, {static_cast<std::int64_t>(target.size())}};
  operands.cross_cache = {256, {{0}}, {static_cast<std::int64_t>(source.size())}};
  const cpu::GraphResults written = interpret_graph(decoder, operands);
  note_largest(decoder, written);
  return Tensor::converted(written.at(decoder.live_outs().at(0)).view(), DType::kFloat32);
}

TEST(T5, GivesTheInterpreterTheSameGraphs) {
  for (const char* name : {"base", "scale_decoder_outputs"}) {
    const nlohmann::json& entry = t5_golden().at(name);
    const TemporaryFolder folder;
    t5_golden().write(folder, entry);
    double largest = 0;
    EXPECT_LT(relative_error(interpreted(*read_t5(folder), DType::kFloat32, t5_golden().source(),
                                         t5_golden().target(entry), &largest),
                             t5_golden().logits(entry)),
              kTolerance)
        << name;
  }
}

TEST(T5, StaysFiniteInFloat16) {
  for (const char* name : {"base", "gated-gelu", "gelu", "head of its own"}) {
    const nlohmann::json& entry = t5_golden().at(name);
    std::map<std::string, Tensor> weights = t5_golden().weights(entry);
    // A residual stream that float16 cannot hold; but of GELU also a feed-forward part.
    const bool bends = std::string(name) == "gelu";
    for (auto& [tensor_name, tensor] : weights) {
      const bool inner = tensor_name.ends_with("wi.weight") || tensor_name.ends_with("wi_1.weight");
      if (!(bends ? tensor_name.ends_with("wo.weight") : inner)) continue;
      for (float& x : tensor.as<float>()) x *= 4e4f;
    }
    const TemporaryFolder folder;
    t5_golden().write(folder, entry.at("config"), weights);
    const auto model = read_t5(folder);
    double largest = 0, largest_half = 0;
    const Tensor expected = interpreted(*model, DType::kFloat32, t5_golden().source(),
                                        t5_golden().target(entry), &largest);
    const Tensor half = interpreted(*model, DType::kFloat16, t5_golden().source(),
                                    t5_golden().target(entry), &largest_half);
    EXPECT_GT(largest, 2 * 65504) << name;
    EXPECT_LT(largest / 64, 65504) << name;
    EXPECT_LT(largest_half, 65504) << name;
    EXPECT_LT(relative_error(half, expected), 0.03) << name;
  }
}

TEST(T5, ReadsWhatBeginsAndEndsATextFromTheGenerationConfig) {
  const TemporaryFolder folder;
  nlohmann::json config = t5_golden().at("base").at("config");
  t5_golden().write(folder, t5_golden().at("base"));
  EXPECT_EQ(load_t5_config(folder.path()).end_tokens, std::vector<std::int32_t>{1});
  folder.write("generation_config.json",
               R"({"eos_token_id": [1, 7], "decoder_start_token_id": 3})");
  const T5Config read = load_t5_config(folder.path());
  EXPECT_EQ(read.start_token, 3);
  EXPECT_EQ(read.end_tokens, (std::vector<std::int32_t>{1, 7}));
  // Where nothing is said transformers takes these.
  for (const char* name : {"eos_token_id", "decoder_start_token_id"}) config.erase(name);
  config["pad_token_id"] = 4;
  const T5Config silent = parse_t5_config(config.dump(), "config.json");
  EXPECT_EQ(silent.start_token, 4);
  EXPECT_EQ(silent.end_tokens, std::vector<std::int32_t>{1});
}

TEST(T5, ReadsTasks) {
  nlohmann::json config = t5_golden().at("base").at("config");
  config["task_specific_params"] = {
      {"summarization", {{"prefix", "summarize: "}, {"max_length", 200}, {"num_beams", 4}}},
      {"translation_en_to_de", {{"prefix", "translate English to German: "}}}};
  const T5Config read = parse_t5_config(config.dump(), "config.json");
  ASSERT_EQ(read.tasks.size(), 2u);
  EXPECT_EQ(read.tasks[0].name, "summarization");
  EXPECT_EQ(read.tasks[0].prefix, "summarize: ");
  EXPECT_EQ(read.tasks[0].max_tokens, 200);
  EXPECT_EQ(read.tasks[1].max_tokens, 0);
  config["task_specific_params"]["summarization"]["prefix"] = 3;
  EXPECT_THAT(
      expect_error(ErrorCode::kCorrupt, [&] { parse_t5_config(config.dump(), "config.json"); }),
      AllOf(HasSubstr("task_specific_params: summarization"), HasSubstr("prefix")));
}

TEST(T5, RefusesWhatItDoesNotHonour) {
  const auto refusal = [](ErrorCode code, const nlohmann::json& change) {
    nlohmann::json config = t5_golden().at("base").at("config");
    config.update(change);
    return expect_error(code, [&] { parse_t5_config(config.dump(), "config.json"); });
  };
  for (const auto& [name, value] :
       std::map<std::string, nlohmann::json>{{"model_type", "umt5"},
                                             {"feed_forward_proj", "gated-tanh"},
                                             {"is_encoder_decoder", false},
                                             {"is_decoder", true},
                                             {"quantization_config", {{"bits", 4}}},
                                             {"pruned_heads", {{"0", {1}}}},
                                             {"relative_attention_num_buckets", 9}})
    EXPECT_THAT(refusal(ErrorCode::kUnsupported, {{name, value}}),
                AllOf(HasSubstr("config.json: " + name), HasSubstr("expected")));
  for (const auto& [name, value] :
       std::map<std::string, nlohmann::json>{{"d_model", 0},
                                             {"d_kv", "8"},
                                             {"num_layers", -1},
                                             {"relative_attention_max_distance", 4},
                                             {"layer_norm_epsilon", 2},
                                             {"decoder_start_token_id", -1},
                                             {"task_specific_params", 1}})
    EXPECT_THAT(refusal(ErrorCode::kCorrupt, {{name, value}}), HasSubstr("config.json: " + name));

  const nlohmann::json& base = t5_golden().at("base");
  const auto load_error = [&](ErrorCode code, const nlohmann::json& config,
                              const std::map<std::string, Tensor>& weights) {
    const TemporaryFolder folder;
    t5_golden().write(folder, config, weights);
    return expect_error(code, [&] { Seq2Seq model(read_t5(folder)); });
  };
  nlohmann::json fewer = base.at("config");
  fewer["num_decoder_layers"] = 1;
  EXPECT_THAT(load_error(ErrorCode::kCorrupt, fewer, t5_golden().weights(base)),
              AllOf(HasSubstr("decoder.block.1."), HasSubstr("num_decoder_layers")));
  nlohmann::json wider = base.at("config");
  wider["d_ff"] = 25;
  EXPECT_THAT(load_error(ErrorCode::kCorrupt, wider, t5_golden().weights(base)),
              AllOf(HasSubstr("DenseReluDense.wi.weight"), HasSubstr("[25, 16]")));
  std::map<std::string, Tensor> without = t5_golden().weights(base);
  without.erase("shared.weight");
  EXPECT_THAT(load_error(ErrorCode::kNotFound, base.at("config"), without),
              HasSubstr("shared.weight"));

  const TemporaryFolder folder;
  t5_golden().write(folder, base);
  const Seq2Seq model(read_t5(folder));
  exec::RunTiming timing;
  auto lease = model.start({2}, 4);
  const std::vector<std::int32_t> unknown = {2, 40};
  EXPECT_THAT(
      expect_error(ErrorCode::kInvalidArgument, [&] { lease.encode({unknown}, {}, timing); }),
      AllOf(HasSubstr("token 1"), HasSubstr("below 40")));
}

}  // namespace
}  // namespace stof::model
