// The interpreter: BERT against its encoder and plain loops, and random graphs cut in every legal
// way against themselves uncut.

#include "backend/cpu/graph/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <random>

#include "cpu/tolerance.h"
#include "fusion/random_graph.h"
#include "graph/deferred_norm.h"
#include "model/bert_encoder.h"
#include "model/bert_graph.h"
#include "model/llama_graph.h"
#include "model/tiny_bert.h"
#include "stof/error.h"

namespace stof::fusion {
namespace {

using cpu::GraphOperands;
using cpu::GraphResults;
using graph::GraphBuilder;

std::vector<double> doubles(const Tensor& tensor) {
  const Tensor converted = Tensor::converted(tensor.view(), DType::kFloat64);
  const auto values = converted.as<double>();
  return {values.begin(), values.end()};
}

/// BERT as a graph, its weights and a batch of packed texts.
class TinyGraph {
 public:
  TinyGraph(const model::TinyBert& tiny, DType dtype) {
    tiny.write(folder_);
    config = model::load_bert_config(folder_.path());
    weights_ = model::load_bert_weights(Checkpoint::open(folder_.path()), config);
    texts.add(std::vector<std::int32_t>{2, 5, 9, 7, 3});
    texts.add(std::vector<std::int32_t>{2, 20, 11, 3});
    graph.emplace(model::build_bert_graph(config, texts.num_tokens(), dtype));
    bound_ = model::bind_bert_weights(*graph, weights_);
    operands.values = bound_.values;
    operands.values[graph->find("ids")] = {texts.ids.data(), DType::kInt32, {9}};
    operands.values[graph->find("positions")] = {texts.positions.data(), DType::kInt32, {9}};
    operands.offsets = texts.offsets;
    operands.mask = mask::window(2, 1);
  }

  std::vector<double> encoder() {
    model::EncoderTiming timing;
    const model::BertEncoder encoder(std::move(weights_), config);
    return doubles(encoder.forward(texts, operands.mask, timing));
  }
  std::vector<double> result(const GraphResults& results) const {
    return doubles(results.at(graph->live_outs().at(0)));
  }

  model::BertConfig config;
  model::PackedTexts texts;
  std::optional<Graph> graph;
  GraphOperands operands;

 private:
  model::TemporaryFolder folder_;
  model::BertWeights weights_;
  model::GraphWeights bound_;
};

TEST(Interpreter, GivesTheEncodersNumbersForBert) {
  for (const char* activation : {"gelu", "gelu_new", "relu"}) {
    model::TinyBert tiny;
    tiny.config["hidden_act"] = activation;  // Case 31
    tiny.config["layer_norm_eps"] = 0.1;     // Case 30
    TinyGraph bert(tiny, DType::kFloat32);
    const auto whole = bert.result(interpret_graph(*bert.graph, bert.operands));
    const auto rules = decode(*bert.graph, Scheme::from_sizes({2, 1, 1, 3, 3, 4}));
    const auto fused = bert.result(interpret_segments(*bert.graph, rules, bert.operands));
    const auto expected = bert.encoder();
    EXPECT_TRUE(cpu::close_to(whole, expected, {1e-5, 1e-4})) << activation;
    EXPECT_TRUE(cpu::close_to(fused, expected, {1e-5, 1e-4})) << activation;
    // The first text alone, by loops that know no graph.
    const auto rows = tiny.run({2, 5, 9, 7, 3}, bert.operands.mask);
    std::vector<double> loops, first(whole.begin(), whole.begin() + 5 * 24);
    for (const auto& row : rows) loops.insert(loops.end(), row.begin(), row.end());
    EXPECT_TRUE(cpu::close_to(first, loops, {1e-5, 1e-4})) << activation;
  }
}

TEST(Interpreter, RoundsOnlyAtTheEndsOfSegments) {
  const model::TinyBert tiny;
  TinyGraph bert(tiny, DType::kBFloat16);
  const auto whole = interpret_graph(*bert.graph, bert.operands);
  const auto segments = decode(*bert.graph, Scheme::from_sizes({2, 1, 4, 3, 4}));
  const auto fused = interpret_segments(*bert.graph, segments, bert.operands);
  EXPECT_LT(fused.size(), whole.size());
  // An operator's own rounding is on the way of the one and not of the other.
  const graph::ValueId qkv = bert.graph->find("layer.0.query_key_value.add_bias");
  EXPECT_NE(doubles(whole.at(qkv)), doubles(fused.at(qkv)));
  EXPECT_TRUE(cpu::close_to(doubles(fused.at(qkv)), doubles(whole.at(qkv)), {8e-3, 2e-2}));
  EXPECT_TRUE(cpu::close_to(bert.result(fused), bert.encoder(), {3e-2, 0.3}));
}

TEST(Interpreter, GivesEverySchemeOfRandomGraphsTheSameNumbers) {
  int fused_segments = 0, gates = 0, sums = 0, caches = 0, chains = 0, prologues = 0;
  int squares = 0, scales = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    const RandomGraph random(seed);
    const GraphResults whole = interpret_graph(random.graph(), random.operands());
    for (int cut = 0; cut < 4; ++cut) {
      const Scheme scheme = random.legal_scheme(cut);
      const auto segments = decode(random.graph(), scheme);
      const GraphResults fused = interpret_segments(random.graph(), segments, random.operands());
      for (const Segment& segment : segments) {
        fused_segments += segment.last > segment.first;
        for (const EpilogueStep& step : segment.steps) {
          caches += step.step == Step::kCacheStore && segment.outputs.size() > 1;
          gates += step.step == Step::kSilu && step.operand != kNoId;
          squares += step.step == Step::kRowSquares && segment.outputs.size() > 1;
          scales += step.step == Step::kRmsScale && segment.family == Family::kGemm;
        }
        sums += segment.outputs.size() > 1;
        chains += segment.family == Family::kGemmChain;
        prologues += segment.family == Family::kNormGemm;
      }
      for (const auto& [id, tensor] : fused)
        ASSERT_TRUE(cpu::close_to(doubles(tensor), doubles(whole.at(id)), {1e-4, 2e-3}))
            << "seed " << seed << ", scheme " << scheme.text() << ", value "
            << random.graph().value(id).name << "\n"
            << random.graph().print();
      for (const ValueId id : random.graph().live_outs()) ASSERT_TRUE(fused.contains(id));
    }
  }
  // What the loop is for did occur.
  EXPECT_GT(fused_segments, 300);
  EXPECT_GT(gates, 10);
  EXPECT_GT(sums, 10);
  EXPECT_GT(caches, 10);
  EXPECT_GT(chains, 10);
  EXPECT_GT(prologues, 10);
  EXPECT_GT(squares, 10);
  EXPECT_GT(scales, 10);
}

/// A LLaMA of two layers, whose products have biases where asked for, and its operands.
class SmallLlama {
 public:
  explicit SmallLlama(bool bias) {
    model::LlamaConfig config;
    config.hidden_size = config.intermediate_size = 64;
    config.num_layers = config.num_heads = 2;
    config.num_kv_heads = 1;
    config.head_dim = 32;
    config.vocab_size = 9;
    config.tied_head = false;
    config.rms_norm_eps = 1e-3f;
    config.qkv_bias = bias;
    config.windows = {0, 0};
    graph.emplace(model::build_llama_graph(config, 5, DType::kFloat32, {.joined_gate = true}));
    std::mt19937 random(4);
    std::normal_distribution<float> normal(0, 0.3f);
    for (std::size_t i = 0; i < graph->values().size(); ++i) {
      const graph::Value& value = graph->values()[i];
      if (value.kind == graph::ValueKind::kActivation) continue;
      Tensor& tensor = tensors_.emplace_back(value.dtype, value.shape);
      std::int32_t next = 0;
      if (value.dtype == DType::kInt32)
        for (std::int32_t& id : tensor.as<std::int32_t>()) id = next++;
      else
        for (float& x : tensor.as<float>()) x = normal(random);
      operands.values[static_cast<ValueId>(i)] = std::as_const(tensor).view();
    }
    operands.mask = mask::causal();
  }
  std::optional<Graph> graph;
  GraphOperands operands;

 private:
  std::deque<Tensor> tensors_;
};

TEST(DeferredNorms, ChangeNoNumber) {
  for (const bool bias : {false, true}) {
    const SmallLlama llama(bias);
    const graph::DeferredNorms in_front = defer_norms(*llama.graph, graph::NormPlace::kInFront);
    const graph::DeferredWeights front_weights(*llama.graph, in_front, llama.operands.values);
    const graph::DeferredNorms deferred = defer_norms(*llama.graph);
    const graph::DeferredWeights weights(*llama.graph, deferred, llama.operands.values);
    EXPECT_EQ(deferred.folded.size(), 4);
    ASSERT_EQ(deferred.kept.size(), 1);  // the head's, outside of layers
    EXPECT_EQ(deferred.kept[0].code, graph::KeptNormCode::kLayers);
    const auto operands_of = [&](const Graph& graph, const graph::DeferredWeights& some) {
      GraphOperands operands = llama.operands;
      operands.values = some.views;
      for (const ValueId id : llama.graph->of_kind(graph::ValueKind::kInput))
        operands.values[graph.find(llama.graph->value(id).name)] = llama.operands.values.at(id);
      return operands;
    };
    const GraphOperands operands = operands_of(deferred.graph, weights);
    const auto expected =
        doubles(interpret_graph(*llama.graph, llama.operands).at(llama.graph->live_outs().at(0)));
    const ValueId result = deferred.graph.live_outs().at(0);
    EXPECT_TRUE(cpu::close_to(doubles(interpret_graph(deferred.graph, operands).at(result)),
                              expected, {1e-5, 1e-4}));
    const GraphOperands front_operands = operands_of(in_front.graph, front_weights);
    EXPECT_EQ(in_front.graph.num_operators(), llama.graph->num_operators());
    EXPECT_TRUE(cpu::close_to(
        doubles(
            interpret_graph(in_front.graph, front_operands).at(in_front.graph.live_outs().at(0))),
        expected, {1e-5, 1e-4}));
    // All but the ones are weights of both.
    for (const ValueId id : deferred.graph.of_kind(graph::ValueKind::kWeight))
      EXPECT_NE(in_front.graph.find(deferred.graph.value(id).name), graph::kNoId);
    // As Hopper fuses it: sums of squares leave products, whose readers scale their rows.
    const std::vector<int> sizes =
        bias ? std::vector<int>{4, 1, 3, 4, 3} : std::vector<int>{3, 1, 3, 4, 3};
    const auto segments = decode(deferred.graph, Scheme::from_sizes(sizes));
    EXPECT_TRUE(
        cpu::close_to(doubles(interpret_segments(deferred.graph, segments, operands).at(result)),
                      expected, {1e-5, 1e-4}));
  }
}

TEST(Interpreter, KeepsLargeHalfPrecisionRowsFinite) {
  // Case 32: squares of 6e4 overflow float16, as does the sum of a row.
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat16, {2, 4});
  const ValueId gamma = builder.weight("gamma", DType::kFloat32, {4});
  const ValueId beta = builder.weight("beta", DType::kFloat32, {4});
  const ValueId n = builder.layer_norm("n", x, gamma, beta, 1e-12);
  builder.mark_live_out(n);
  builder.mark_live_out(builder.rms_norm("r", x, gamma, 1e-12));
  const Graph graph = builder.build();
  const std::vector<float> rows = {6e4f, -6e4f, 6e4f, 6e4f, 6e4f, 6e4f, 6e4f, 5.9e4f};
  const Tensor halves = Tensor::converted({rows.data(), DType::kFloat32, {2, 4}}, DType::kFloat16);
  const std::vector<float> ones(4, 1), zeros(4, 0);
  GraphOperands operands;
  operands.values = {{x, halves.view()},
                     {gamma, {ones.data(), DType::kFloat32, {4}}},
                     {beta, {zeros.data(), DType::kFloat32, {4}}}};
  const GraphResults results = interpret_graph(graph, operands);
  const double third = 1 / std::sqrt(3.0), three = std::sqrt(3.0);
  EXPECT_TRUE(cpu::close_to(doubles(results.at(n)),
                            {third, -three, third, third, third, third, third, -three},
                            cpu::tolerance_of(DType::kFloat16)));
  EXPECT_NEAR(doubles(results.at(graph.find("r")))[1], -1, 1e-3);
}

TEST(Interpreter, NamesWhatIsNotBoundOrDoesNotFit) {
  const RandomGraph random(3);
  const auto message = [&](const GraphOperands& operands) -> std::string {
    try {
      interpret_graph(random.graph(), operands);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  GraphOperands missing = random.operands();
  const ValueId x = random.graph().find("x");
  missing.values.erase(x);
  EXPECT_EQ(message(missing), "value \"x\": expected a tensor, got none");
  GraphOperands narrow = random.operands();
  narrow.values[x].shape[1] -= 1;
  EXPECT_NE(message(narrow).find("value \"x\": expected a tensor of float32[5, 8]"),
            std::string::npos)
      << message(narrow);
}

TEST(Interpreter, RefusesAnIdOutsideOfItsTable) {
  model::TinyBert tiny;
  TinyGraph bert(tiny, DType::kFloat32);
  bert.texts.ids[3] = 30;
  EXPECT_THROW(interpret_graph(*bert.graph, bert.operands), Error);
  bert.texts.ids[3] = -1;
  EXPECT_THROW(interpret_graph(*bert.graph, bert.operands), Error);
}

}  // namespace
}  // namespace stof::fusion
