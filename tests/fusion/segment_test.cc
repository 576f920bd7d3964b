// Schemes and what they are decoded to.

#include "fusion/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fusion/choice.h"
#include "model/bert_graph.h"
#include "stof/error.h"

namespace stof::fusion {
namespace {

using graph::GraphBuilder;
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
  const Graph graph = model::build_bert_graph(tiny_config(), 5, kF32);
  EXPECT_THAT(error_of([&] { decode(graph, Scheme::separate(13)); }),
              AllOf(HasSubstr("14"), HasSubstr("13")));
  EXPECT_THAT(error_of([&] {
                decode(graph, Scheme::from_sizes({3, 11}));
              }),
              AllOf(HasSubstr("layer.0.attention"), HasSubstr("attention_alone")));
}

}  // namespace
}  // namespace stof::fusion
