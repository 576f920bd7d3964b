// The graph: what the builder infers and refuses, validation of graphs made wrong, text.

#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/bert_graph.h"
#include "stof/error.h"

namespace stof::graph {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

model::BertConfig tiny_config() {
  model::BertConfig config;
  config.hidden_size = 8;
  config.num_layers = 2;
  config.num_heads = 2;
  config.intermediate_size = 12;
  config.vocab_size = 20;
  config.max_positions = 16;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-5f;
  return config;
}

TEST(Graph, HasBertsOperatorsInTheirOrder) {
  const Graph graph = model::build_bert_graph(tiny_config(), 5, DType::kBFloat16);
  EXPECT_EQ(graph.num_layers(), 2);
  EXPECT_EQ(graph.num_operators(), 2 + 2 * 14);
  using enum Op;
  std::vector<Op> layer;
  const auto [first, last] = graph.layer_range(1);
  for (OperatorId i = first; i <= last; ++i) layer.push_back(graph.op(i).op);
  EXPECT_THAT(layer, ElementsAre(kMatmul, kBias, kAttention, kMatmul, kBias, kAdd, kLayerNorm,
                                 kMatmul, kBias, kActivation, kMatmul, kBias, kAdd, kLayerNorm));
  const Value& key = graph.value(graph.find("layer.1.key"));
  EXPECT_EQ(graph.value(key.view_of).name, "layer.1.query_key_value.add_bias");
  EXPECT_EQ(key.view_column, 8);
  EXPECT_THAT(graph.value(key.view_of).consumers, ElementsAre(first + 2));
  const Value& result = graph.value(graph.live_outs().at(0));
  EXPECT_EQ(result.name, "layer.1.output_norm");
  EXPECT_EQ(result.shape, Dims({5, 8}));
}

}  // namespace
}  // namespace stof::graph
