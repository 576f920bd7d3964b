// The LLaMA family's graph, run by the interpreter and by a session, against transformers' logits.

#include "model/llama_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "backend/cpu/graph/interpret.h"
#include "backend/cpu/thread_scope.h"
#include "exec/cpu_session.h"
#include "model/llama_weights.h"
#include "model/tiny_llama.h"
#include "stof/error.h"

namespace stof::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A checkpoint's tensors under the names of its graph.
std::map<std::string, Tensor> by_graph_name(const LlamaWeights& weights,
                                            const LlamaConfig& config) {
  std::map<std::string, Tensor> named;
  const auto add = [&](const std::string& name, LlamaWeights::Dense dense) {
    named[name + ".weight"] = std::move(dense.weight);
    if (!dense.bias.empty()) named[name + ".bias"] = std::move(dense.bias);
  };
  named["embeddings"] = weights.embeddings();
  named["final_norm.gamma"] = weights.final_norm();
  named["head.weight"] = weights.head();
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    LlamaWeights::Layer layer = weights.layer(i);
    const std::string prefix = "layer." + std::to_string(i) + ".";
    named[prefix + "attention_norm.gamma"] = std::move(layer.attention_norm);
    named[prefix + "mlp_norm.gamma"] = std::move(layer.mlp_norm);
    add(prefix + "query_key_value", std::move(layer.query_key_value));
    add(prefix + "attention_output", std::move(layer.attention_output));
    add(prefix + "gate", std::move(layer.gate));
    add(prefix + "up", std::move(layer.up));
    add(prefix + "down", std::move(layer.down));
  }
  return named;
}

TEST(LlamaGraph, GivesTheLogitsOfTransformersWhoeverRunsIt) {
  const LlamaGolden golden;
  const std::vector<std::int32_t> ids = golden.ids();
  const auto rows = static_cast<std::int64_t>(ids.size());
  Tensor positions(DType::kInt32, {rows});
  for (std::int64_t i = 0; i < rows; ++i)
    positions.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  const TensorView ids_view(ids.data(), DType::kInt32, {rows});
  const cpu::ThreadScope one_thread(1);
  for (const std::string name :
       {"base", "tied", "attention_bias", "mlp_bias", "heads", "mistral", "qwen2"}) {
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
    LlamaConfig config = load_llama_config(folder.path());
    const LlamaWeights weights(Checkpoint::open(folder.path()), config);
    const std::map<std::string, Tensor> named = by_graph_name(weights, config);
    mask::Mask mask = mask::causal();
    if (config.windows[0] > 0) mask = mask & mask::window(config.windows[0] - 1, 0);

    const graph::Graph graph = build_llama_graph(config, rows, DType::kFloat32);
    ASSERT_EQ(graph.live_outs().size(), 1u);
    cpu::GraphOperands operands;
    operands.mask = mask;
    operands.values[graph.find("ids")] = ids_view;
    operands.values[graph.find("positions")] = std::as_const(positions).view();
    std::map<graph::ValueId, TensorView> views;
    for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kWeight))
      views[id] = named.at(graph.value(id).name).view();
    operands.values.insert(views.begin(), views.end());
    const cpu::GraphResults results = cpu::interpret_graph(graph, operands);
    EXPECT_LT(relative_error(results.at(graph.live_outs()[0]), golden.logits(name)), kTolerance)
        << name;

    const auto shared = std::make_shared<exec::CpuWeights>(graph, views);
    exec::CpuSession session(
        [&](std::int64_t count) { return build_llama_graph(config, count, DType::kFloat32); },
        shared);
    exec::Batch batch;
    batch.inputs = {{"ids", ids_view}, {"positions", std::as_const(positions).view()}};
    batch.offsets = {0, rows};
    batch.mask = mask;
    EXPECT_LT(relative_error(session.run(batch), golden.logits(name)), kTolerance) << name;
  }
}

TEST(LlamaGraph, HasThirteenOperatorsALayer) {
  const LlamaGolden golden;
  const LlamaConfig config = parse_llama_config(golden.at("base").at("config").dump(), "c.json");
  const graph::Graph graph = build_llama_graph(config, 5, DType::kBFloat16);
  EXPECT_EQ(graph.num_layers(), 3);
  for (int layer = 0; layer < 3; ++layer) {
    const auto [first, last] = graph.layer_range(layer);
    EXPECT_EQ(last - first + 1, 13);
  }
  EXPECT_EQ(graph.value(graph.live_outs()[0]).shape, Dims({5, 50}));
}

TEST(LlamaGraph, RefusesWhatItCannotSay) {
  const LlamaGolden golden;
  const auto refusal = [&](const char* name, std::int64_t rows, DType dtype) {
    const LlamaConfig config = parse_llama_config(golden.at(name).at("config").dump(), "c.json");
    try {
      build_llama_graph(config, rows, dtype);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal("rope llama3", 5, DType::kFloat32), HasSubstr("rope"));
  EXPECT_THAT(refusal("qwen2 window", 5, DType::kFloat32),
              AllOf(HasSubstr("windows"), HasSubstr("0 and 5")));
  EXPECT_THAT(refusal("base", 0, DType::kFloat32), HasSubstr("rows"));
  EXPECT_THAT(refusal("base", 5, DType::kInt32), HasSubstr("dtype"));
}

}  // namespace
}  // namespace stof::model
