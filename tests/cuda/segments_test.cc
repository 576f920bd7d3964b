// What runs fused segments on a GPU, asked without one: families, their order, and their kernels.

#include "backend/cuda/segments/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/common_kernels.h"
#include "backend/cuda/segments/operands.h"
#include "fusion/initial.h"
#include "graph/deferred_norm.h"
#include "jit/nvrtc.h"
#include "model/bert_graph.h"
#include "model/gemma_model.h"
#include "model/llama_graph.h"
#include "stof/error.h"

namespace stof::cuda {
namespace {

using fusion::Choice;
using graph::Graph;
using testing::HasSubstr;

Device described(int major, int num_sms) {
  DeviceFacts facts;
  facts.major = major;
  facts.num_sms = num_sms;
  return Device::described(facts);
}

Graph bert(std::int64_t rows, DType dtype = DType::kBFloat16) {
  model::BertConfig config;
  config.hidden_size = 768;
  config.num_layers = 1;
  config.num_heads = 12;
  config.intermediate_size = 3072;
  config.vocab_size = config.max_positions = config.num_segments = 2;
  config.layer_norm_eps = 1e-12f;
  return model::build_bert_graph(config, rows, dtype);
}

/// LLaMA 3.2 1B's layer with a cache: rms_norm, matmul, rope, cache_store, attention, matmul, add,
/// rms_norm, matmul, activation, multiply, matmul, add.
Graph llama(std::int64_t rows, std::int64_t layers = 1) {
  model::LlamaConfig config;
  config.hidden_size = 2048;
  config.num_layers = layers;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = 8192;
  config.vocab_size = config.max_positions = 8;
  config.rms_norm_eps = 1e-5f;
  config.windows.assign(static_cast<std::size_t>(layers), 0);
  return model::build_llama_graph(config, rows, DType::kBFloat16,
                                  {.cache_size = 1024, .joined_gate = true});
}

/// Of operators first..last of the layer, without the library, which needs a driver.
std::vector<Choice> own_candidates(const Graph& graph, int first, int last, const Device& device) {
  const int begin = graph.layer_range(0).first;
  return first_candidates(graph, fusion::make_segment(graph, begin + first, begin + last), device,
                          [](const std::string& family) { return family != "cublaslt"; });
}

std::string family_of(const Graph& graph, int first, int last, const Device& device) {
  const std::vector<Choice> all = own_candidates(graph, first, last, device);
  return all.empty() ? "" : all[0].family;
}

TEST(CudaSegments, HaveTheFamilyThatRunsThem) {
  const Graph graph = bert(4096);
  const Device hopper = described(9, 132), ampere = described(8, 108);
  EXPECT_EQ(family_of(graph, 0, 1, hopper), "gemm_sm90");  // product, bias
  EXPECT_EQ(family_of(graph, 3, 5, hopper), "gemm_sm90");  // and residual
  EXPECT_EQ(family_of(graph, 7, 9, hopper), "gemm_sm90");  // and GELU (erf)
  EXPECT_EQ(family_of(graph, 3, 6, hopper), "gemm_sm90");  // and norm, its vectors float32
  EXPECT_EQ(family_of(graph, 7, 9, ampere), "gemm_sm80");
  EXPECT_EQ(family_of(graph, 3, 6, ampere), "");  // no norm behind a product there
  for (const Device& device : {hopper, ampere}) {
    EXPECT_EQ(family_of(graph, 2, 2, device), "attention");
    EXPECT_EQ(family_of(graph, 4, 6, device), "row");
    EXPECT_EQ(family_of(graph, 8, 9, device), "row");
  }
  EXPECT_EQ(family_of(bert(4096, DType::kFloat32), 2, 2, hopper), "");
  EXPECT_EQ(family_of(bert(4096, DType::kFloat32), 4, 6, hopper), "");
}

TEST(CudaSegments, RunEveryPartOfALlamaLayer) {
  const Graph graph = llama(4096);
  const Device hopper = described(9, 132);
  for (const auto& [first, last, family] : {std::tuple{0, 0, "row"},
                                            {1, 1, "gemm_sm90"},
                                            {1, 2, "gemm_sm90"},
                                            {2, 3, "row"},
                                            {4, 4, "attention"},
                                            {5, 6, "gemm_sm90"},
                                            {7, 7, "row"},
                                            {8, 10, "gemm_sm90"},
                                            {11, 12, "gemm_sm90"},
                                            {9, 10, "row"}})
    EXPECT_EQ(family_of(graph, first, last, hopper), family) << first;
}

TEST(CudaSegments, RunEveryPartOfAGemmaLayer) {
  model::GemmaConfig config;  // Gemma 3 270M's
  config.hidden_size = 640;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 1;
  config.head_dim = 256;
  config.intermediate_size = 2048;
  config.vocab_size = config.max_positions = 8;
  config.rms_norm_eps = 1e-6f;
  config.query_scalar = 256;
  config.windows = {512, 0};
  const Device hopper = described(9, 132), ampere = described(8, 108);
  for (const std::int64_t rows : {1, 4096})
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      const Graph graph = model::build_gemma_graph(
          config, rows, dtype, {.cache_size = 1024, .reads_cache = rows == 1, .joined_gate = true});
      const auto [first, last] = graph.layer_range(0);
      int norms = 0;
      for (const Device& device : {hopper, ampere})
        for (const auto& segment : decode(graph, fusion::Scheme::separate(last - first + 1))) {
          const bool heads = graph.op(segment.first).op == graph::Op::kHeadNorm;
          const auto found =
              first_candidates(graph, segment, device,
                               [](const std::string& family) { return family != "cublaslt"; });
          ASSERT_FALSE(found.empty()) << describe(graph, segment);
          norms += heads && found[0].family == "row";
        }
      EXPECT_EQ(norms, 2 * 2);
      // rms_norm, matmul, head_norm, rope, cache_store: the last three are one.
      EXPECT_EQ(family_of(graph, 2, 4, hopper), "row");
      EXPECT_EQ(family_of(graph, 1, 2, hopper), "");  // no norm of heads behind a product
    }
}

TEST(CudaSegments, RunEveryPartOfALayerWithDeferredNorms) {
  const Graph graph = defer_norms(llama(4096, 2)).graph;
  const Device hopper = described(9, 132), ampere = described(8, 108);
  // matmul, rms_scale, rope, cache_store, attention, matmul, add, row_squares, matmul, rms_scale,
  // activation, multiply, matmul, add, row_squares
  for (const auto& [first, last, family] : {std::tuple{0, 2, "gemm_sm90"},
                                            {5, 7, "gemm_sm90"},
                                            {8, 11, "gemm_sm90"},
                                            {12, 14, "gemm_sm90"}}) {
    EXPECT_EQ(family_of(graph, first, last, hopper), family) << first;
    EXPECT_EQ(family_of(graph, first, last, ampere), "") << first;
  }
  for (const Device& device : {hopper, ampere})
    for (const auto& [first, last] : {std::pair{1, 1}, {1, 2}, {6, 7}, {7, 7}, {9, 9}, {13, 14}})
      EXPECT_EQ(family_of(graph, first, last, device), "row") << first;
  EXPECT_EQ(family_of(graph, 0, 0, ampere), "gemm_sm80");
  // One by one, and outside of layers, whatever there is of Hopper's.
  const auto [first, last] = graph.layer_range(0);
  for (const fusion::Segment& segment : decode(graph, fusion::Scheme::separate(last - first + 1)))
    EXPECT_FALSE(first_candidates(graph, segment, ampere,
                                  [](const std::string& family) { return family != "cublaslt"; })
                     .empty())
        << describe(graph, segment);
}

TEST(CudaSegments, CompileTheKernelsThatTheyNameWithoutSpills) {
  const Device hopper = described(9, 132);
  for (const std::int64_t rows : {128, 32768}) {
    const Graph of_bert = bert(rows), of_llama = llama(rows);
    for (const auto& [first, last, family, is_llama] : {std::tuple{3, 5, &kSm90GemmRunners, false},
                                                        {6, 6, &kRowRunners, false},
                                                        {4, 6, &kRowRunners, false},
                                                        {2, 3, &kRowRunners, true}}) {
      const Graph& graph = is_llama ? of_llama : of_bert;
      const int begin = graph.layer_range(0).first;
      const fusion::Segment segment = fusion::make_segment(graph, begin + first, begin + last);
      const Choice choice = own_candidates(graph, first, last, hopper).at(0);
      ASSERT_EQ(choice.family, family->name);
      EXPECT_EQ(Choice::from_text(choice.text()), choice);
      const jit::CubinRequest kernel = family->kernel(graph, segment, choice, hopper);
      EXPECT_EQ(kernel.target, "sm_90a");
      const auto module = jit::Nvrtc::instance().compile(kernel.name, kernel.source, kernel.target);
      const jit::ResourceReport report = jit::parse_resources(module.log);
      EXPECT_GT(report.registers, 0) << kernel.name;
      EXPECT_EQ(report.spill_bytes, 0) << kernel.name;
      EXPECT_FALSE(report.wgmma_serialized) << kernel.name;
    }
  }
}

TEST(CudaSegments, RefuseChoicesByName) {
  const Device hopper = described(9, 132);
  const Graph graph = bert(128);
  const fusion::Segment norm =
      fusion::make_segment(graph, graph.layer_range(0).first + 6, graph.layer_range(0).first + 6);
  const auto message = [&](const Choice& choice) -> std::string {
    try {
      make_runner(graph, norm, choice, {}, hopper);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({"onednn", {}}), HasSubstr("no such family"));
  EXPECT_THAT(message({"attention", {}}), HasSubstr("it is no attention"));
  EXPECT_THAT(message({"gemm_sm90", {}}), HasSubstr("none of the kernels'"));
  EXPECT_THAT(message({"row", {{"vector", 8}, {"warps", 1}}}), HasSubstr("rows"));
}

TEST(RowRunners, OfUntunedBertAreAmongTheCommonKernels) {
  const Device device = described(9, 132);
  std::set<std::string> common;
  for (const auto& request : common_kernels({}, "sm_90a")) common.insert(request.name);
  for (const std::int64_t rows : {16, 32768}) {
    const Graph graph = bert(rows);
    int found = 0;
    for (const fusion::Segment& segment : fusion::decode(graph, fusion::initial_scheme(graph)))
      for (const Choice& choice : kRowRunners.candidates(graph, segment, device)) {
        const auto kernel = kRowRunners.kernel(graph, segment, choice, device);
        EXPECT_TRUE(common.contains(kernel.name)) << kernel.name;
        ++found;
        break;
      }
    EXPECT_EQ(found, 3);  // embeddings, two halves of a layer
  }
}

}  // namespace
}  // namespace stof::cuda
