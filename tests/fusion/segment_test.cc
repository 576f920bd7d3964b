// Schemes and what they are decoded to.

#include "fusion/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "fusion/choice.h"
#include "fusion/cost.h"
#include "fusion/initial.h"
#include "graph/tiny_config.h"
#include "model/bert_graph.h"
#include "model/llama_graph.h"
#include "stof/error.h"

namespace stof::fusion {
namespace {

using graph::GraphBuilder;
using graph::tiny_config;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kFloat = DType::kFloat32;

std::vector<Step> steps_of(const Segment& segment) {
  std::vector<Step> steps;
  for (const EpilogueStep& step : segment.steps) steps.push_back(step.step);
  return steps;
}

std::vector<std::string> names(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(graph.value(id).name);
  return names;
}

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

TEST(Scheme, IsCanonicalAndReadsWhatItWrites) {
  const Scheme scheme = Scheme::from_text("11010001");
  EXPECT_EQ(scheme.text(), "00101110");
  EXPECT_EQ(scheme, Scheme::from_text("00101110"));
  EXPECT_EQ(scheme.hex(), "8:2e");
  EXPECT_EQ(Scheme::from_text("8:2e"), scheme);
  EXPECT_THAT(scheme.segments(), ElementsAre(std::pair(0, 1), std::pair(2, 2), std::pair(3, 3),
                                             std::pair(4, 6), std::pair(7, 7)));
  EXPECT_EQ(Scheme::from_sizes({2, 1, 1, 3, 1}), scheme);
  EXPECT_EQ(Scheme::separate(5).text(), "01010");
  EXPECT_EQ(Scheme::from_text("10001").hex(), "5:70");
  EXPECT_EQ(Scheme::from_text("5:70").text(), "01110");
  std::set<std::string> texts;
  for (unsigned bits = 0; bits < 64; ++bits) {
    std::vector<bool> list;
    for (int i = 0; i < 6; ++i) list.push_back((bits >> i & 1) != 0);
    const Scheme any(list);
    EXPECT_EQ(Scheme::from_text(any.hex()), any);
    EXPECT_EQ(Scheme::from_text(any.text()), any);
    texts.insert(any.hex());
  }
  EXPECT_EQ(texts.size(), 32u);  // complements are one
}

TEST(Scheme, MovesOneBoundary) {
  const Scheme scheme = Scheme::from_sizes({2, 3, 1});
  EXPECT_EQ(scheme.with_boundary(2, false), Scheme::from_sizes({5, 1}));
  EXPECT_EQ(scheme.with_boundary(3, true), Scheme::from_sizes({2, 1, 2, 1}));
  EXPECT_EQ(scheme.with_boundary(2, true), scheme);
}

TEST(Scheme, RefusesTextThatIsNone) {
  for (const char* text : {"", "0120", "4:", "4:12", "4:g", "0:", "5:7f", "99999:0", "x:0"})
    EXPECT_THROW(Scheme::from_text(text), Error) << text;
  EXPECT_THAT(error_of([] { Scheme::from_text("5:7f"); }), HasSubstr("past operator 4"));
}

TEST(Choice, ReadsWhatItWrites) {
  Choice choice;
  choice.family = "gemm_sm90";
  choice.parameters = {{"tile_n", 192}, {"tile_m", 128}, {"split", -1}};
  EXPECT_EQ(choice.text(), "gemm_sm90 split=-1 tile_m=128 tile_n=192");
  EXPECT_EQ(Choice::from_text(choice.text()), choice);
  EXPECT_EQ(choice.at("tile_m"), 128);
  EXPECT_THAT(error_of([&] { choice.at("stages"); }), HasSubstr("\"stages\""));
  for (const char* text : {"", " ", "A", "row x", "row x=", "row x=1.5", "row x=1 x=2", "row  x=1",
                           "row =1", "row x=99999999999999999999"})
    EXPECT_THROW(Choice::from_text(text), Error) << text;
}

TEST(Decode, GivesBertsSegmentsFamilyAndSteps) {
  const Graph graph = model::build_bert_graph(tiny_config(), 5, DType::kBFloat16);
  const auto segments = decode(graph, Scheme::from_sizes({2, 1, 1, 3, 3, 4}));
  ASSERT_EQ(segments.size(), 1u + 2 * 6);
  using enum Step;
  EXPECT_EQ(segments[0].family, Family::kEmbedding);
  EXPECT_THAT(steps_of(segments[0]), ElementsAre(kLayerNorm));
  EXPECT_THAT(names(graph, segments[0].inputs),
              ElementsAre("ids", "word_embeddings", "positions", "position_embeddings",
                          "segment_embeddings", "embedding_norm.gamma", "embedding_norm.beta"));
  EXPECT_EQ(segments[1].family, Family::kGemm);
  EXPECT_THAT(steps_of(segments[1]), ElementsAre(kBias));
  EXPECT_EQ(segments[2].family, Family::kAttention);
  EXPECT_THAT(names(graph, segments[2].inputs),
              ElementsAre("layer.0.query", "layer.0.key", "layer.0.value"));
  EXPECT_THAT(steps_of(segments[3]), ElementsAre());
  EXPECT_EQ(segments[4].family, Family::kRow);
  EXPECT_THAT(steps_of(segments[4]), ElementsAre(kBias, kResidual, kLayerNorm));
  EXPECT_THAT(
      names(graph, segments[4].inputs),
      ElementsAre("layer.0.attention_output", "layer.0.attention_output.bias", "embedding_norm",
                  "layer.0.attention_norm.gamma", "layer.0.attention_norm.beta"));
  EXPECT_FLOAT_EQ(static_cast<float>(segments[4].steps[2].epsilon), 1e-5f);
  EXPECT_THAT(steps_of(segments[5]), ElementsAre(kBias, kGeluErf));
  EXPECT_THAT(steps_of(segments[6]), ElementsAre(kBias, kResidual, kLayerNorm));
  EXPECT_EQ(segments[6].family, Family::kGemm);
  EXPECT_THAT(names(graph, segments[6].outputs), ElementsAre("layer.0.output_norm"));
  EXPECT_THAT(names(graph, {segments[6].steps[2].operand, segments[6].steps[2].operand2}),
              ElementsAre("layer.0.output_norm.gamma", "layer.0.output_norm.beta"));
  // Equal layers share hashes; the first layer's input comes from outside of the layers.
  for (std::size_t i = 1; i < 7; ++i)
    EXPECT_EQ(segment_hash(graph, segments[i]), segment_hash(graph, segments[i + 6])) << i;
  EXPECT_EQ(describe(graph, segments[5]), "gemm \"layer.0.intermediate\": bias, gelu_erf");
}

TEST(Decode, RefusesASchemeOfAnotherSizeOrAnIllegalOne) {
  const Graph graph = model::build_bert_graph(tiny_config(), 5, kFloat);
  EXPECT_THAT(error_of([&] { decode(graph, Scheme::separate(13)); }),
              AllOf(HasSubstr("14"), HasSubstr("13")));
  EXPECT_THAT(error_of([&] {
                decode(graph, Scheme::from_sizes({3, 11}));
              }),
              AllOf(HasSubstr("layer.0.attention"), HasSubstr("attention_alone")));
}

// --- hashes -------------------------------------------------------------------------------------

/// All that plays a part in a hash, each of which a test changes singly, and what does not.
struct Settings {
  std::int64_t rows = 6, in = 8, out = 16;
  DType dtype = DType::kBFloat16, vectors = kFloat;
  graph::Activation activation = graph::Activation::kGeluErf;
  double epsilon = 1e-5, scale = 0;
  std::int64_t heads = 2, kv_heads = 1, head_dim = 4;
  int mask = 0;
  graph::Pooling pooling = graph::Pooling::kMean;
  std::int64_t query_column = 0;
  bool rms = false, gate = false, weight_is_input = false, in_place = false, sum_is_result = false;

  std::string name;        ///< of everything
  bool other_ids = false;  ///< values and operators in front
};

/// Hashes of: product with bias and activation, residual and norm, rope, attention, head store,
/// pooling.
std::vector<Fingerprint> hashes(const Settings& s) {
  GraphBuilder b;
  if (s.other_ids)
    b.mark_live_out(
        b.activation("before", b.input("early", kFloat, {3, 3}), graph::Activation::kRelu));
  const auto named = [&](const char* name) { return s.name + name; };
  const ValueId x = b.input(named("x"), s.dtype, {s.rows, s.in});
  const ValueId w = s.weight_is_input ? b.input(named("w"), s.dtype, {s.out, s.in})
                                      : b.weight(named("w"), s.dtype, {s.out, s.in});
  const ValueId v = b.weight(named("v"), s.vectors, {s.out});
  const ValueId other = b.input(named("other"), s.dtype, {s.rows, s.out});
  const OperatorId first = s.other_ids ? 1 : 0;
  const ValueId m = b.bias(named("bias"), b.matmul(named("m"), x, w), v);
  const ValueId a = b.activation(named("a"), m, s.activation);
  const ValueId r = s.gate ? b.multiply(named("r"), a, other) : b.add(named("r"), a, other);
  const ValueId n = s.rms ? b.rms_norm(named("n"), r, v, s.epsilon)
                          : b.layer_norm(named("n"), r, v, v, s.epsilon);
  if (s.in_place) b.overwrite(n, other);
  if (s.sum_is_result) b.mark_live_out(r);
  const ValueId positions = b.input(named("positions"), DType::kInt32, {s.rows});
  const ValueId frequencies = b.weight(named("frequencies"), kFloat, {s.head_dim / 2});
  const ValueId turned =
      b.rope(named("rope"), n, positions, frequencies, s.heads, s.kv_heads, s.head_dim);
  const ValueId wide = b.input(named("wide"), s.dtype, {s.rows, 64});
  const auto part = [&](const char* name, std::int64_t column, std::int64_t count) {
    return b.columns(named(name), wide, column, count * s.head_dim);
  };
  const ValueId context =
      b.attention(named("attention"), part("q", s.query_column, s.heads), part("k", 24, s.kv_heads),
                  part("value", 40, s.kv_heads), s.heads, s.kv_heads, s.head_dim, s.scale, s.mask);
  b.mark_live_out(b.head_store(named("apart"), context, s.heads, s.head_dim));
  const ValueId offsets = b.input(named("offsets"), DType::kInt32, {3});
  b.mark_live_out(b.pool(named("pooled"), turned, offsets, s.pooling));
  const Graph graph = b.build();
  std::vector<Fingerprint> hashes;
  for (const auto& [from, to] : {std::pair(0, 2), {3, 4}, {5, 5}, {6, 6}, {7, 7}, {8, 8}})
    hashes.push_back(segment_hash(graph, make_segment(graph, first + from, first + to)));
  return hashes;
}

TEST(SegmentHash, ChangesWithEachThingThatCounts) {
  struct Change {
    const char* what;
    std::set<int> changed;  ///< which of the segments
    std::function<void(Settings&)> apply;
  };
  const std::set<int> kAll = {0, 1, 2, 3, 4, 5};
  const std::vector<Change> changes = {
      {"rows", kAll, [](Settings& s) { s.rows = 7; }},
      {"in", {0}, [](Settings& s) { s.in = 9; }},
      {"dtype", kAll, [](Settings& s) { s.dtype = DType::kFloat16; }},
      {"vectors", {0, 1}, [](Settings& s) { s.vectors = s.dtype; }},
      {"activation", {0}, [](Settings& s) { s.activation = graph::Activation::kGeluTanh; }},
      {"epsilon", {1}, [](Settings& s) { s.epsilon = 1e-6; }},
      {"scale", {3}, [](Settings& s) { s.scale = 0.25; }},
      {"view's column", {3}, [](Settings& s) { s.query_column = 8; }},
      {"pooling", {5}, [](Settings& s) { s.pooling = graph::Pooling::kCls; }},
      {"norm", {1}, [](Settings& s) { s.rms = true; }},
      {"operator", {1}, [](Settings& s) { s.gate = true; }},
      {"weight that is none", {0}, [](Settings& s) { s.weight_is_input = true; }},
      {"in place", {1, 2}, [](Settings& s) { s.in_place = true; }},
      {"stored sum", {1}, [](Settings& s) { s.sum_is_result = true; }},
      {"heads", {2, 3, 4}, [](Settings& s) { s.heads = 4, s.kv_heads = 2, s.head_dim = 2; }},
  };
  const std::vector<Fingerprint> usual = hashes({});
  for (const Change& change : changes) {
    Settings settings;
    change.apply(settings);
    const std::vector<Fingerprint> found = hashes(settings);
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(found[static_cast<std::size_t>(i)] != usual[static_cast<std::size_t>(i)],
                change.changed.contains(i))
          << change.what << ", segment " << i;
  }
}

TEST(SegmentHash, IgnoresNamesIdsAndMasks) {
  Settings named, moved, masked;
  masked.mask = 2;
  EXPECT_EQ(hashes(masked), hashes({}));
  named.name = "another.";
  moved.other_ids = true;
  EXPECT_EQ(hashes(named), hashes({}));
  EXPECT_EQ(hashes(moved), hashes({}));
}

TEST(SegmentHash, TellsValuesApartThatAreEqualInShape) {
  // gamma and beta apart, or one vector for both; a + b, or a + a.
  const auto hash = [](bool same) {
    GraphBuilder b;
    const ValueId x = b.input("x", kFloat, {4, 8}), y = b.input("y", kFloat, {4, 8});
    b.mark_live_out(b.add("sum", x, same ? x : y));
    const Graph graph = b.build();
    return segment_hash(graph, make_segment(graph, 0, 0));
  };
  EXPECT_NE(hash(true), hash(false));
}

// --- initial scheme and cost --------------------------------------------------------------------

TEST(InitialScheme, FusesWhatSavesMostOfBert) {
  model::BertConfig config = tiny_config();
  const Graph graph = model::build_bert_graph(config, 40, DType::kBFloat16);
  EXPECT_EQ(initial_scheme(graph), Scheme::from_sizes({2, 1, 1, 3, 3, 1, 3}));
  EXPECT_EQ(initial_scheme(graph).hex(), "14:2e20");  // as docs/fusion.md draws it
  const auto frequent = frequent_segments(graph);
  EXPECT_GT(frequent.size(), 10u);
  EXPECT_EQ(graph.op(frequent[0].first).op, graph::Op::kMatmul);
  bool twice_a_layer = false;  // bias, add, layer_norm
  for (const FrequentSegment& segment : frequent) {
    EXPECT_EQ(segment.count % 2, 0);
    if (segment.count != 4) continue;
    twice_a_layer = twice_a_layer || segment.last - segment.first == 2;
  }
  EXPECT_TRUE(twice_a_layer);
  // Few rows: the two products of the feed-forward part as one.
  const Graph small = model::build_bert_graph(config, 16, DType::kBFloat16);
  InitialRules rules;
  rules.chain_rows = 16;
  EXPECT_EQ(initial_scheme(small, {}, rules).text(), Scheme::from_sizes({2, 1, 1, 3, 6, 1}).text());
  EXPECT_EQ(initial_scheme(graph, {}, rules), initial_scheme(graph));
  EXPECT_EQ(initial_scheme(small), initial_scheme(graph));
}

TEST(InitialScheme, ProductsOfFewRowsTakeTheNormBeforeAndTheCacheBehind) {
  model::LlamaConfig config;
  config.hidden_size = 64, config.num_layers = 2, config.num_heads = 4, config.num_kv_heads = 2;
  config.head_dim = 16, config.intermediate_size = 128, config.vocab_size = 32;
  config.windows.assign(2, 0);
  const auto scheme_of = [&](std::int64_t rows) {
    const Graph graph =
        model::build_llama_graph(config, rows, DType::kBFloat16,
                                 {.cache_size = 64, .reads_cache = true, .joined_gate = true});
    return initial_scheme(graph, {}, {.streamed_rows = 8});
  };
  // norm, qkv, rope, cache; attention; output, add; norm, gate and up, silu, multiply; down, add
  EXPECT_EQ(scheme_of(8).text(), Scheme::from_sizes({4, 1, 2, 4, 2}).text());
  EXPECT_EQ(scheme_of(9).text(), Scheme::from_sizes({1, 2, 1, 1, 2, 1, 3, 2}).text());
}

TEST(Decode, KeepsProductsOutsideOfLayersApart) {
  graph::GraphBuilder builder;
  const auto x = builder.input("x", DType::kBFloat16, {5, 16});
  const auto product =
      builder.matmul("product", x, builder.weight("matrix", DType::kBFloat16, {16, 16}));
  const auto biased =
      builder.bias("biased", product, builder.weight("bias", DType::kBFloat16, {16}));
  const auto added = builder.add("added", biased, x);
  const auto gamma = builder.weight("gamma", DType::kFloat32, {16});
  builder.mark_live_out(builder.rms_norm("norm", added, gamma, 1e-5));
  const Graph graph = builder.build();
  const auto segments = decode(graph, Scheme());
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_THAT(steps_of(segments[0]), ElementsAre(Step::kBias));
  EXPECT_EQ(segments[1].family, Family::kRow);
}

TEST(Cost, CountsTilesWavesAndWhatMustBeMoved) {
  model::BertConfig config = tiny_config();
  config.hidden_size = 768;
  config.num_heads = 12;
  config.intermediate_size = 3072;
  const Graph graph = model::build_bert_graph(config, 4096, DType::kBFloat16);
  const auto segments = decode(graph, initial_scheme(graph));
  const MachineFacts facts = h200_facts();
  const Segment& qkv = segments[1];
  const SegmentCost cost = predict(graph, qkv, facts, {128, 192, 64, 1});
  EXPECT_EQ(cost.tiles, 32 * 12);
  EXPECT_EQ(cost.waves, 3);
  EXPECT_DOUBLE_EQ(cost.flops, 2.0 * 4096 * 768 * 2304);
  EXPECT_DOUBLE_EQ(cost.bytes, 2.0 * (4096.0 * 768 + 2304 * 768 + 2304 + 4096.0 * 2304));
  // bench/results and docs/gpu.md: a product of this shape takes 20 to 25 us.
  EXPECT_GT(cost.microseconds, 18);
  EXPECT_LT(cost.microseconds, 28);
  EXPECT_LE(predict(graph, qkv, facts).microseconds, cost.microseconds);
  // Fusing never adds to the sum of its parts.
  const SegmentCost fused = predict(graph, segments, facts);
  const auto separate = decode(graph, Scheme::separate(14));
  const SegmentCost apart = predict(graph, separate, facts);
  EXPECT_LT(fused.microseconds, apart.microseconds);
  EXPECT_LT(fused.bytes, apart.bytes);
  EXPECT_EQ(apart.launches, 1 + 2 * 14);
  EXPECT_THAT(cost.text(), HasSubstr("384 tiles in 3 waves, 14.5 GFLOP"));
  EXPECT_THROW(predict(graph, qkv, facts, {0, 1, 1, 1}), Error);
  EXPECT_THROW(predict(graph, qkv, MachineFacts{}), Error);
}

}  // namespace
}  // namespace stof::fusion
