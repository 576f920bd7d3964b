// The interpreter: BERT against its encoder and plain loops, and random graphs cut in every legal
// way against themselves uncut.

#include "backend/cpu/graph/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "cpu/tolerance.h"
#include "fusion/random_graph.h"
#include "model/bert_encoder.h"
#include "model/bert_graph.h"
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
