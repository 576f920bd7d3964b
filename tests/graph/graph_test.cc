// The graph: what the builder infers and refuses, validation of graphs made wrong, text.

#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "graph/deferred_norm.h"
#include "graph/tiny_config.h"
#include "model/bert_graph.h"
#include "model/llama_graph.h"
#include "stof/error.h"

namespace stof::graph {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

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

// --- building -----------------------------------------------------------------------------------

struct Parts : GraphBuilder {
  ValueId x = input("x", kF32, {6, 8});
  ValueId half = input("half", DType::kFloat16, {6, 8});
  ValueId ids = input("ids", DType::kInt32, {6});
  ValueId square = weight("square", kF32, {8, 8});
  ValueId vector = weight("vector", kF32, {8});
  ValueId narrow = weight("narrow", kF32, {7});
};

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(GraphBuilder, InfersShapesAndTypes) {
  Parts p;
  const ValueId w = p.weight("w", kF32, {24, 8});
  const ValueId qkv = p.matmul("qkv", p.x, w);
  const ValueId q = p.columns("q", qkv, 0, 8), k = p.columns("k", qkv, 8, 4);
  const ValueId v = p.columns("v", qkv, 12, 4);
  const ValueId a = p.attention("a", q, k, v, 4, 2, 2, 0.5);
  const ValueId apart = p.head_store("apart", a, 4, 2);
  const ValueId flat = p.reshape("flat", apart, {8, 6});
  const ValueId table = p.weight("table", DType::kBFloat16, {11, 5});
  const ValueId e = p.embedding("e", p.ids, table);
  const ValueId offsets = p.input("offsets", DType::kInt32, {4});
  const ValueId pooled = p.pool("pooled", e, offsets, Pooling::kMax);
  p.mark_live_out(pooled);
  p.mark_live_out(flat);
  const Graph graph = p.build();
  EXPECT_EQ(graph.value(qkv).shape, Dims({6, 24}));
  EXPECT_EQ(graph.value(a).shape, Dims({6, 8}));
  EXPECT_EQ(graph.value(apart).shape, Dims({4, 6, 2}));
  EXPECT_EQ(graph.value(flat).shape, Dims({8, 6}));
  EXPECT_EQ(graph.value(e).shape, Dims({6, 5}));
  EXPECT_EQ(graph.value(e).dtype, DType::kBFloat16);
  EXPECT_EQ(graph.value(pooled).shape, Dims({3, 5}));
  EXPECT_THAT(graph.value(qkv).consumers, ElementsAre(1));
  EXPECT_EQ(graph.storage(v), qkv);
  EXPECT_THAT(graph.live_outs(), ElementsAre(flat, pooled));
  EXPECT_EQ(graph.num_layers(), 0);
  EXPECT_EQ(graph.op(1).attributes.scale, 0.5);
}

TEST(GraphBuilder, RefusesWhatDoesNotFitNamingOperatorAndValue) {
  struct Case {
    const char* value;
    std::function<ValueId(Parts&)> make;
  };
  const ValueId kNothing = 999;
  const std::vector<Case> cases = {
      {"\"vector\"", [](Parts& p) { return p.matmul("op", p.x, p.vector); }},
      {"\"square\"", [](Parts& p) { return p.matmul("op", p.half, p.square); }},
      {"[out, 8]",
       [](Parts& p) {
         return p.matmul("op", p.x, p.weight("w", kF32, {8, 7}));
       }},
      {"\"narrow\"", [](Parts& p) { return p.bias("op", p.x, p.narrow); }},
      {"\"ids\"", [](Parts& p) { return p.bias("op", p.x, p.ids); }},
      {"activation", [](Parts& p) { return p.activation("op", p.x, Activation::kNone); }},
      {"\"ids\"", [](Parts& p) { return p.activation("op", p.ids, Activation::kRelu); }},
      {"\"half\"", [](Parts& p) { return p.add("op", p.x, p.half); }},
      {"\"square\"", [](Parts& p) { return p.multiply("op", p.x, p.square); }},
      {"\"narrow\"", [](Parts& p) { return p.layer_norm("op", p.x, p.narrow, p.vector, 0); }},
      {"\"narrow\"", [](Parts& p) { return p.layer_norm("op", p.x, p.vector, p.narrow, 0); }},
      {"epsilon", [](Parts& p) { return p.layer_norm("op", p.x, p.vector, p.vector, -1); }},
      {"epsilon", [](Parts& p) { return p.rms_norm("op", p.x, p.vector, std::nan("")); }},
      {"\"x\"", [](Parts& p) { return p.rope("op", p.x, p.ids, p.vector, 2, 2, 4); }},
      {"head_dim", [](Parts& p) { return p.rope("op", p.x, p.ids, p.vector, 6, 1, 1); }},
      {"\"vector\"", [](Parts& p) { return p.rope("op", p.x, p.ids, p.vector, 2, 1, 2); }},
      {"\"x\"", [](Parts& p) { return p.rope("op", p.x, p.x, p.vector, 2, 1, 2); }},
      {"kv_heads", [](Parts& p) { return p.attention("op", p.x, p.x, p.x, 4, 3, 2); }},
      {"\"x\"", [](Parts& p) { return p.attention("op", p.x, p.x, p.x, 4, 4, 3); }},
      {"\"half\"", [](Parts& p) { return p.attention("op", p.x, p.half, p.x, 4, 4, 2); }},
      {"scale", [](Parts& p) { return p.attention("op", p.x, p.x, p.x, 4, 4, 2, -1); }},
      {"\"x\"", [](Parts& p) { return p.head_store("op", p.x, 3, 3); }},
      {"\"x\"", [](Parts& p) { return p.cache_store("op", p.x, p.ids, p.square, 3, 1, 2); }},
      {"\"x\"", [](Parts& p) { return p.cache_store("op", p.x, p.x, p.square, 2, 1, 2); }},
      {"[size, 4]", [](Parts& p) { return p.cache_store("op", p.x, p.ids, p.square, 2, 1, 2); }},
      {"\"x\"",
       [](Parts& p) {
         return p.reshape("op", p.x, {7, 7});
       }},
      {"\"view\"", [](Parts& p) { return p.reshape("op", p.columns("view", p.x, 0, 4), {24}); }},
      {"\"ids\"", [](Parts& p) { return p.embedding("op", p.ids, p.ids); }},
      {"\"x\"", [](Parts& p) { return p.embedding("op", p.x, p.square); }},
      {"inputs", [](Parts& p) { return p.embedding("op", p.ids, p.square, p.ids); }},
      {"\"half\"", [](Parts& p) { return p.embedding("op", p.ids, p.square, p.ids, p.half); }},
      {"pooling", [](Parts& p) { return p.pool("op", p.x, p.ids, Pooling::kNone); }},
      {"\"x\"", [](Parts& p) { return p.pool("op", p.x, p.x, Pooling::kCls); }},
      {"999", [=](Parts& p) { return p.bias("op", p.x, kNothing); }},
  };
  for (const Case& test : cases) {
    Parts p;
    EXPECT_THAT(error_of([&] { test.make(p); }), AllOf(HasSubstr("\"op\""), HasSubstr(test.value)))
        << test.value;
  }
  Parts p;
  EXPECT_THAT(error_of([&] { p.columns("view", p.x, 4, 5); }),
              AllOf(HasSubstr("\"view\""), HasSubstr("\"x\""), HasSubstr("5 from column 4")));
  const ValueId view = p.columns("view", p.x, 4, 4);
  EXPECT_THAT(error_of([&] { p.columns("again", view, 0, 2); }), HasSubstr("\"again\""));
  EXPECT_THAT(error_of([&] { p.input("none", kF32, {0, 8}); }), HasSubstr("\"none\""));
}

TEST(GraphBuilder, StampsLayersWithTheirOwnWeights) {
  Parts p;
  p.begin_layer(p.x);
  const ValueId w = p.weight("layer.0.w", kF32, {8, 8});
  const ValueId m = p.matmul("layer.0.m", p.x, w);
  const ValueId shared = p.bias("layer.0.b", m, p.vector);  // from outside of the layer
  const ValueId left = p.columns("layer.0.left", shared, 0, 8);
  p.end_layer(p.add("layer.0.out", left, p.x));
  p.mark_live_out(p.stamp_layers(3));
  const Graph graph = p.build();
  EXPECT_EQ(graph.num_layers(), 3);
  EXPECT_EQ(graph.layer_range(2), std::pair(6, 8));
  EXPECT_THROW(graph.layer_range(3), Error);
  const Operator& add = graph.op(8);
  EXPECT_EQ(add.name, "layer.2.out");
  EXPECT_EQ(add.layer, 2);
  EXPECT_EQ(graph.value(add.inputs[0]).name, "layer.2.left");
  EXPECT_EQ(graph.value(add.inputs[1]).name, "layer.1.out");
  EXPECT_EQ(graph.value(graph.op(6).inputs[0]).name, "layer.1.out");
  EXPECT_EQ(graph.value(graph.op(6).inputs[1]).name, "layer.2.w");
  EXPECT_EQ(graph.op(7).inputs[1], graph.find("vector"));
  EXPECT_EQ(graph.find("layer.3.w"), kNoId);

  Parts wrong;
  wrong.begin_layer(wrong.x);
  EXPECT_THAT(error_of([&] {
                wrong.end_layer(
                    wrong.matmul("layer.0.m", wrong.x, wrong.weight("layer.0.w", kF32, {4, 8})));
              }),
              AllOf(HasSubstr("\"layer.0.m\""), HasSubstr("[6, 8]"), HasSubstr("[6, 4]")));
}

/// Attention of three layers under masks 0, 1, 0.
Graph three_layers(std::vector<int> masks) {
  Parts p;
  p.begin_layer(p.x);
  const ValueId qkv = p.matmul("layer.0.qkv", p.x, p.weight("layer.0.w", kF32, {24, 8}));
  p.end_layer(p.attention("layer.0.a", p.columns("layer.0.q", qkv, 0, 8),
                          p.columns("layer.0.k", qkv, 8, 8), p.columns("layer.0.v", qkv, 16, 8), 4,
                          4, 2));
  p.mark_live_out(p.stamp_layers(3, masks));
  return p.build();
}

TEST(GraphBuilder, GivesLayersMasksOfTheirOwn) {
  const Graph graph = three_layers({0, 1, 0}), one = three_layers({});
  EXPECT_EQ(graph.num_masks(), 2);
  EXPECT_EQ(one.num_masks(), 1);
  EXPECT_EQ(graph.op(3).attributes.mask, 1);
  EXPECT_THAT(graph.print(), HasSubstr("head_dim 2, mask 1} : float32[6, 8]\n%layer.2"));
  const auto json = nlohmann::json::parse(graph.to_json());
  EXPECT_EQ(json["operators"][3]["attributes"]["mask"], 1);
  EXPECT_FALSE(json["operators"][1]["attributes"].contains("mask"));
  EXPECT_NE(graph.fingerprint(), one.fingerprint());
  EXPECT_NE(graph.fingerprint(), three_layers({0, 0, 1}).fingerprint());
  EXPECT_EQ(one.fingerprint(), three_layers({0, 0, 0}).fingerprint());
  EXPECT_THAT(error_of([] { three_layers({0, 1}); }), HasSubstr("each of 3 layers, got 2"));
  EXPECT_THAT(error_of([] {
                three_layers({0, -1, 0});
              }),
              AllOf(HasSubstr("\"layer.1.a\""), HasSubstr("mask"), HasSubstr("at least 0")));
}

// --- validating, printing -----------------------------------------------------------------------

TEST(Graph, ValidateFindsWhatIsWrong) {
  using Break = std::function<void(std::vector<Value>&, std::vector<Operator>&)>;
  Parts p;
  const ValueId m = p.matmul("m", p.x, p.square);
  const ValueId view = p.columns("view", m, 4, 4);
  const ValueId a = p.activation("a", view, Activation::kRelu);
  const ValueId b = p.bias("b", m, p.vector);
  p.overwrite(b, m);
  p.mark_live_out(b);
  p.mark_live_out(a);
  const Graph graph = p.build();
  const auto at = [](auto& list, int id) -> auto& { return list[static_cast<std::size_t>(id)]; };
  const std::vector<std::pair<const char*, Break>> breaks = {
      {"\"m\"", [&](auto& v, auto&) { at(v, b).name = "m"; }},
      {"\"m\"",
       [&](auto& v, auto&) {
         at(v, m).shape = {6, 9};
       }},
      {"\"m\"", [&](auto& v, auto&) { at(v, m).dtype = DType::kFloat16; }},
      {"\"m\"", [&](auto& v, auto&) { at(v, m).consumers = {2}; }},
      {"\"m\"", [&](auto& v, auto&) { at(v, m).producer = 2; }},
      {"\"m\"", [&](auto& v, auto&) { at(v, m).kind = ValueKind::kInput; }},
      {"\"square\"",
       [&](auto& v, auto&) {
         at(v, 3).shape = {8, 9};
       }},
      {"\"view\"", [&](auto& v, auto&) { at(v, view).view_column = 5; }},
      {"\"view\"", [&](auto& v, auto&) { at(v, view).view_of = 99; }},
      {"\"view\"", [&](auto& v, auto&) { at(v, view).view_of = view; }},
      {"\"m\"",
       [&](auto&, auto& o) {
         at(o, 0).inputs = {0, 77};
       }},
      {"\"m\"",
       [&](auto&, auto& o) {
         at(o, 0).inputs = {a, 3};
       }},
      {"\"m\"", [&](auto&, auto& o) { at(o, 0).outputs = {}; }},
      {"\"m\"", [&](auto&, auto& o) { at(o, 0).outputs = {a}; }},
      {"layer 0 again", [&](auto&, auto& o) { at(o, 0).layer = 0, at(o, 2).layer = 0; }},
      {"layer below", [&](auto&, auto& o) { at(o, 1).layer = 4; }},
      {"at least one result",
       [&](auto& v, auto&) { at(v, a).live_out = at(v, b).live_out = false; }},
      {"at least one operator", [&](auto& v, auto& o) { v.clear(), o.clear(); }},
      {"\"b\"", [&](auto& v, auto&) { at(v, b).overwrites = 3; }},     // a weight
      {"\"b\"", [&](auto& v, auto&) { at(v, b).overwrites = 1; }},     // another type
      {"\"b\"", [&](auto& v, auto&) { at(v, m).live_out = true; }},    // a result
      {"\"a\"", [&](auto& v, auto&) { at(v, a).overwrites = view; }},  // by columns
  };
  for (const auto& [named, broken] : breaks) {
    std::vector<Value> values = graph.values();
    std::vector<Operator> operators = graph.operators();
    broken(values, operators);
    EXPECT_THAT(error_of([&] { Graph(values, operators).validate(); }), HasSubstr(named));
  }
}

TEST(Graph, CacheStoresAreWrittenOverTheirCaches) {
  Parts p;
  p.begin_layer(p.x);
  const ValueId cache = p.state("layer.0.cache", kF32, {9, 4});
  const ValueId x = p.bias("layer.0.b", p.x, p.vector);
  const ValueId stored = p.cache_store("layer.0.stored", x, p.ids, cache, 2, 1, 2);
  p.columns("layer.0.keys", stored, 0, 2);
  p.end_layer(x);
  p.mark_live_out(p.stamp_layers(2));
  const Graph graph = p.build();
  EXPECT_EQ(graph.value(stored).shape, Dims({9, 4}));
  const ValueId second = graph.find("layer.1.cache");
  EXPECT_EQ(graph.value(second).kind, ValueKind::kState);
  EXPECT_EQ(graph.storage(graph.find("layer.1.keys")), second);
  EXPECT_THAT(graph.of_kind(ValueKind::kState), ElementsAre(cache, second));
  std::vector<Value> values = graph.values();
  values[static_cast<std::size_t>(stored)].overwrites = kNoId;
  EXPECT_THAT(error_of([&] { Graph(values, graph.operators()).validate(); }),
              AllOf(HasSubstr("\"layer.0.stored\""), HasSubstr("\"layer.0.cache\"")));

  Parts late;  // what was in the cache is read after others took its place
  const ValueId before = late.state("before", kF32, {6, 4});
  late.cache_store("stored", late.x, late.ids, before, 2, 1, 2);
  late.mark_live_out(late.activation("a", before, Activation::kRelu));
  EXPECT_THAT(error_of([&] { late.build(); }), AllOf(HasSubstr("\"before\""), HasSubstr("\"a\"")));
}

TEST(Graph, ValidateRefusesAnUpdateThatOthersStillNeed) {
  Parts late;  // m is read after b took its memory
  const ValueId m = late.matmul("m", late.x, late.square);
  const ValueId b = late.bias("b", m, late.vector);
  late.overwrite(b, m);
  late.mark_live_out(late.add("sum", b, m));
  EXPECT_THAT(error_of([&] { late.build(); }), AllOf(HasSubstr("\"m\""), HasSubstr("\"sum\"")));

  Parts product;  // a product reads its operand again for every column
  const ValueId y = product.matmul("y", product.x, product.square);
  product.overwrite(y, product.x);
  product.mark_live_out(y);
  EXPECT_THAT(error_of([&] { product.build(); }), AllOf(HasSubstr("\"x\""), HasSubstr("\"y\"")));

  Parts twice;
  const ValueId first = twice.bias("first", twice.x, twice.vector);
  twice.overwrite(first, twice.x);
  twice.mark_live_out(first);
  const ValueId second = twice.activation("second", first, Activation::kRelu);
  twice.overwrite(second, twice.x);
  twice.mark_live_out(second);
  EXPECT_THAT(error_of([&] { twice.build(); }), HasSubstr("too"));
}

TEST(Graph, PrintsAndWritesWhatItHolds) {
  const Graph graph = model::build_bert_graph(tiny_config(), 5, DType::kFloat16);
  const std::string text = graph.print();
  EXPECT_THAT(text, HasSubstr("graph of 30 operators in 2 layers, 2 inputs, 29 weights, 1 result"));
  EXPECT_THAT(text, HasSubstr("%layer.1.attention = attention "
                              "%layer.1.query_key_value.add_bias[0:8], "
                              "%layer.1.query_key_value.add_bias[8:16], "
                              "%layer.1.query_key_value.add_bias[16:24] "
                              "{heads 2, kv_heads 2, head_dim 4} : float16[5, 8]\n"));
  EXPECT_THAT(text, HasSubstr("%layer.0.activation = activation %layer.0.intermediate.add_bias "
                              "{kind gelu_erf} : float16[5, 12]\n"));
  EXPECT_THAT(text, HasSubstr("%embedding_norm.beta = weight : float32[8]\n"));
  EXPECT_THAT(text, ::testing::EndsWith("return %layer.1.output_norm\n"));
  const auto json = nlohmann::json::parse(graph.to_json());
  EXPECT_EQ(json["operators"].size(), 30u);
  EXPECT_EQ(json["values"].size(), graph.values().size());
  EXPECT_EQ(json["operators"][4]["op"], "attention");
  EXPECT_EQ(json["operators"][4]["attributes"]["heads"], 2);
  EXPECT_EQ(json["fingerprint"], graph.fingerprint().hex());
}

TEST(Graph, FingerprintTellsGraphsApart) {
  const auto of = [](std::int64_t rows, DType dtype, float epsilon) {
    model::BertConfig config = tiny_config();
    config.layer_norm_eps = epsilon;
    return model::build_bert_graph(config, rows, dtype).fingerprint();
  };
  EXPECT_EQ(of(5, kF32, 1e-5f), of(5, kF32, 1e-5f));
  EXPECT_NE(of(5, kF32, 1e-5f), of(6, kF32, 1e-5f));
  EXPECT_NE(of(5, kF32, 1e-5f), of(5, DType::kFloat16, 1e-5f));
  EXPECT_NE(of(5, kF32, 1e-5f), of(5, kF32, 1e-6f));
  EXPECT_THROW(of(0, kF32, 1e-5f), Error);
  EXPECT_THROW(of(5, DType::kInt32, 1e-5f), Error);
}

TEST(DeferredNorms, MoveBehindTheirProductsInEveryLayerAlike) {
  model::LlamaConfig config;
  config.hidden_size = config.intermediate_size = 64;
  config.num_layers = config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 32;
  config.vocab_size = 9;
  config.tied_head = true;
  config.rms_norm_eps = 0.25f;
  config.windows = {0, 0};
  const DeferredNorms deferred =
      defer_norms(model::build_llama_graph(config, 5, DType::kBFloat16, {.joined_gate = true}));
  const Graph& graph = deferred.graph;
  using enum Op;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<Op> ops;
    const auto [first, last] = graph.layer_range(layer);
    for (OperatorId i = first; i <= last; ++i) ops.push_back(graph.op(i).op);
    EXPECT_THAT(
        ops, ElementsAre(kMatmul, kRmsScale, kRope, kAttention, kMatmul, kAdd, kRowSquares, kMatmul,
                         kRmsScale, kActivation, kMultiply, kMatmul, kAdd, kRowSquares));
  }
  const std::string text = graph.print();
  EXPECT_THAT(text, HasSubstr("%embedded.squares = row_squares %embedded : float32[5, 2]\n"));
  EXPECT_THAT(text, HasSubstr("%layer.1.query_key_value = rms_scale "
                              "%layer.1.query_key_value.unscaled, %layer.0.mlp_residual.squares "
                              "{epsilon 0.25} : bfloat16[5, 128]\n"));
  EXPECT_THAT(text,
              HasSubstr("%layer.0.gate_up.weight.times_gamma = weight : bfloat16[128, 64]\n"));
  EXPECT_EQ(text.find("mlp_norm"), std::string::npos);
  ASSERT_EQ(deferred.folded.size(), 4u);
  EXPECT_EQ(deferred.folded[0].weight + " " + deferred.folded[0].gamma,
            "layer.0.query_key_value.weight layer.0.attention_norm.gamma");
  // The head's matrix is the embeddings'.
  ASSERT_EQ(deferred.kept.size(), 1u);
  EXPECT_EQ(deferred.kept[0].code, KeptNormCode::kSharedWeight);
  EXPECT_EQ(deferred.kept[0].text,
            "\"final_norm\" is multiplied by \"embeddings\", which is read elsewhere or is no "
            "weight");
  EXPECT_NE(graph.find("final_norm"), kNoId);
}

TEST(DeferredNorms, InFrontHaveOnesThoughTheirGammaIsReadElsewhere) {
  GraphBuilder parts;
  const ValueId x = parts.activation("x", parts.input("input", kF32, {3, 64}), Activation::kRelu);
  const ValueId gamma = parts.weight("gamma", kF32, {64});
  parts.begin_layer(x);
  const ValueId kept = parts.rms_norm("kept", x, gamma, 1e-6);
  const ValueId end = parts.add(
      "sum", kept,
      parts.matmul("m", parts.rms_norm("norm", x, gamma, 1e-6), parts.weight("w", kF32, {64, 64})));
  parts.end_layer(end);
  parts.mark_live_out(end);
  const Graph graph = parts.build();
  const DeferredNorms deferred = defer_norms(graph, NormPlace::kInFront);
  ASSERT_EQ(deferred.folded.size(), 1u);
  const auto gamma_of = [&](const std::string& norm) {
    const Graph& after = deferred.graph;
    return after.value(after.op(after.value(after.find(norm)).producer).inputs[1]).name;
  };
  EXPECT_EQ(gamma_of("kept"), "gamma");
  EXPECT_EQ(gamma_of("norm"), "unit_gamma.64");
}

TEST(DeferredNorms, SayWhyANormStays) {
  struct NormedParts : GraphBuilder {
    explicit NormedParts(std::int64_t width)
        : input_(input("input", kF32, {3, width})),
          x(activation("x", input_, Activation::kRelu)),
          gamma(weight("gamma", kF32, {width})),
          w(weight("w", kF32, {width, width})) {}
    ValueId normed(ValueId of) { return rms_norm("norm", of, gamma, 1e-6); }
    ValueId input_, x, gamma, w;
  };
  const auto kept = [](const std::function<ValueId(NormedParts&)>& result,
                       std::int64_t width = 64) {
    NormedParts parts(width);
    parts.begin_layer(parts.x);
    const ValueId end = result(parts);
    parts.end_layer(end);
    parts.mark_live_out(end);
    const DeferredNorms deferred = defer_norms(parts.build());
    EXPECT_EQ(deferred.kept.size() + deferred.folded.size(), 1u);
    return deferred.kept.empty() ? "none" : std::string(to_string(deferred.kept[0].code));
  };
  EXPECT_EQ(kept([](NormedParts& p) { return p.matmul("m", p.normed(p.x), p.w); }), "none");
  EXPECT_EQ(kept([](NormedParts& p) { return p.matmul("m", p.normed(p.x), p.w); }, 96), "width");
  EXPECT_EQ(kept([](NormedParts& p) { return p.matmul("m", p.normed(p.input_), p.w); }), "source");
  EXPECT_EQ(kept([](NormedParts& p) { return p.normed(p.x); }), "live_out");
  EXPECT_EQ(kept([](NormedParts& p) {
              const ValueId norm = p.normed(p.x);
              return p.add("sum", p.matmul("m", norm, p.w), norm);
            }),
            "other_consumer");
  EXPECT_EQ(
      kept([](NormedParts& p) { return p.matmul("m2", p.matmul("m", p.normed(p.x), p.w), p.w); }),
      "shared_weight");
  EXPECT_EQ(kept([](NormedParts& p) {
              const ValueId beta = p.weight("beta", kF32, {64});
              return p.matmul("m", p.layer_norm("norm", p.x, p.gamma, beta, 1e-6), p.w);
            }),
            "centred");
  NormedParts outside(64);
  outside.mark_live_out(outside.matmul("m", outside.normed(outside.x), outside.w));
  EXPECT_EQ(defer_norms(outside.build()).kept.at(0).code, KeptNormCode::kLayers);
}

}  // namespace
}  // namespace stof::graph
