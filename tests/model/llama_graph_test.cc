// The LLaMA family's graph, run by the interpreter and by a session, against transformers' logits.

#include "model/llama_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <numeric>

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

TEST(LlamaGraph, GivesTheLogitsOfTransformersWhoeverRunsIt) {
  const LlamaGolden golden;
  const std::vector<std::int32_t> ids = golden.ids();
  const auto rows = static_cast<std::int64_t>(ids.size());
  Tensor positions(DType::kInt32, {rows});
  for (std::int64_t i = 0; i < rows; ++i)
    positions.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  Tensor slots(DType::kInt32, {rows});  // from the last row on, two rows of the cache stay free
  for (std::int64_t i = 0; i < rows; ++i)
    slots.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(rows - i);
  const TensorView ids_view(ids.data(), DType::kInt32, {rows});
  const cpu::ThreadScope one_thread(1);
  for (const std::string name : {"base", "tied", "attention_bias", "mlp_bias", "heads", "mistral",
                                 "qwen2", "qwen2 window", "rope llama3", "rope linear"}) {
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
    LlamaConfig config = load_llama_config(folder.path());
    const LlamaWeights weights(Checkpoint::open(folder.path()), config);
    const std::vector<mask::Mask> masks = llama_masks(config);
    ASSERT_EQ(masks.size(), name == "qwen2 window" ? 2u : 1u);

    // What a float32 graph has with a cache and without, and in both ways of its gate.
    const DecoderGraphOptions options = {.cache_size = name == "mistral" ? 0 : rows + 2,
                                         .joined_gate = name == "qwen2" || name == "mlp_bias"};
    const graph::Graph graph = build_llama_graph(config, rows, DType::kFloat32, options);
    ASSERT_EQ(graph.live_outs().size(), 1u);
    cpu::GraphOperands operands;
    operands.mask = masks[0], operands.more_masks = {masks.begin() + 1, masks.end()};
    operands.values[graph.find("ids")] = ids_view;
    operands.values[graph.find("positions")] = std::as_const(positions).view();
    const GraphWeights bound = bind_llama_weights(graph, weights);
    operands.values.insert(bound.values.begin(), bound.values.end());
    if (options.cache_size > 0) operands.values[graph.find("slots")] = std::as_const(slots).view();
    std::deque<Tensor> caches;
    for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kState)) {
      caches.emplace_back(DType::kFloat32, graph.value(id).shape);
      std::fill_n(caches.back().as<float>().data(), caches.back().size(), 0.f);
      operands.values[id] = std::as_const(caches.back()).view();
    }
    const cpu::GraphResults results = cpu::interpret_graph(graph, operands);
    EXPECT_LT(relative_error(results.at(graph.live_outs()[0]), golden.logits(name)), kTolerance)
        << name;

    const auto shared = std::make_shared<exec::CpuWeights>(graph, bound.values);
    exec::CpuSession session(
        [&](std::int64_t count) {
          return build_llama_graph(config, count, DType::kFloat32, options);
        },
        shared);
    exec::Batch batch;
    batch.inputs = {{"ids", ids_view},
                    {"positions", std::as_const(positions).view()},
                    {"slots", std::as_const(slots).view()}};
    batch.offsets = {0, rows};
    batch.mask = masks[0], batch.more_masks = {masks.begin() + 1, masks.end()};
    EXPECT_LT(relative_error(session.run(batch), golden.logits(name)), kTolerance) << name;
    for (std::int64_t i = 0; i < config.num_layers && options.cache_size > 0; ++i) {
      const std::string layer = "layer." + std::to_string(i) + ".";
      const Tensor& expected = results.at(graph.find(layer + "cache_store"));
      const Tensor found = Tensor::copy_of(session.state(layer + "cache"));
      EXPECT_LT(relative_error(found, expected), kTolerance) << name;
    }
  }
}

Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  TensorView part = tensor.view();
  part.data = static_cast<const float*>(part.data) + first * part.strides[0];
  part.shape[0] = count;
  return Tensor::copy_of(part);
}

/// The head of chosen rows, in a graph with room for one more.
TEST(LlamaGraph, GivesTheLogitsOfTheRowsThatAreAskedFor) {
  const LlamaGolden golden;
  const TemporaryFolder folder;
  golden.write(folder, golden.at("tied"), {}, golden.weights(golden.at("tied")));
  LlamaConfig config = load_llama_config(folder.path());
  const LlamaWeights weights(Checkpoint::open(folder.path()), config);
  const auto graph_of = [&](std::int64_t rows) {
    return build_llama_graph(config, rows, DType::kFloat32, {.head_rows = 4});
  };
  const std::vector<std::int32_t> ids = golden.ids();
  const auto rows = static_cast<std::int32_t>(ids.size());
  std::vector<std::int32_t> positions(ids.size()), picks = {rows - 1, 0, rows - 1, 2};
  std::iota(positions.begin(), positions.end(), 0);
  exec::Batch batch;
  batch.mask = mask::causal();
  batch.offsets = {0, rows};
  batch.inputs = {{"ids", {ids.data(), DType::kInt32, {rows}}},
                  {"positions", {positions.data(), DType::kInt32, {rows}}},
                  {"head_rows", {picks.data(), DType::kInt32, {4}}}};
  const graph::Graph graph = graph_of(rows);
  const GraphWeights bound = bind_llama_weights(graph, weights);
  cpu::GraphOperands operands;
  operands.mask = batch.mask;
  operands.values.insert(bound.values.begin(), bound.values.end());
  for (const auto& [input, view] : batch.inputs) operands.values[graph.find(input)] = view;
  const cpu::GraphResults results = cpu::interpret_graph(graph, operands);
  const Tensor logits = golden.logits("tied");
  const auto check = [&](const Tensor& found) {
    for (std::int64_t i = 0; i < found.shape()[0]; ++i)
      EXPECT_LT(relative_error(rows_of(found, i, 1),
                               rows_of(logits, picks[static_cast<std::size_t>(i)], 1)),
                kTolerance)
          << i;
  };
  EXPECT_EQ(results.at(graph.live_outs()[0]).shape(), Dims({4, 50}));
  check(results.at(graph.live_outs()[0]));

  exec::CpuSession session(graph_of, std::make_shared<exec::CpuWeights>(graph, bound.values));
  for (const std::int64_t count : {4, 3, 1}) {
    batch.inputs[2].second.shape = {count};
    const Tensor found = session.run(batch);
    EXPECT_EQ(found.shape(), Dims({count, 50}));
    check(found);
  }
  const auto message = [&](TensorView view) {
    batch.inputs[2].second = view;
    try {
      session.run(batch);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::vector<std::int32_t> far = {0, rows, 0, 0, 0};
  EXPECT_THAT(message({far.data(), DType::kInt32, {2}}),
              AllOf(HasSubstr("\"head_rows\""), HasSubstr("below 23"), HasSubstr("got 23")));
  EXPECT_THAT(message({far.data(), DType::kInt32, {5}}), HasSubstr("int32[4]"));
  EXPECT_THAT(message({far.data(), DType::kFloat32, {1}}), HasSubstr("int32[1]"));
}

/// A prompt in chunks, then token by token, of two sequences in scattered pages.
TEST(LlamaGraph, GivesTheSameLogitsOverCaches) {
  const LlamaGolden golden;
  const cpu::ThreadScope one_thread(1);
  for (const std::string name : {"base", "qwen2", "mistral", "qwen2 window"}) {
    const TemporaryFolder folder;
    golden.write(folder, golden.at(name), {}, golden.weights(golden.at(name)));
    LlamaConfig config = load_llama_config(folder.path());
    const LlamaWeights weights(Checkpoint::open(folder.path()), config);
    const DecoderGraphOptions options = {.cache_size = 40, .reads_cache = true};
    const auto graph_of = [&](std::int64_t rows) {
      return build_llama_graph(config, rows, DType::kFloat32, options);
    };
    const graph::Graph graph = graph_of(1);
    const GraphWeights bound = bind_llama_weights(graph, weights);
    const auto shared = std::make_shared<exec::CpuWeights>(graph, bound.values);
    exec::CpuSession session(graph_of, shared);
    exec::CpuSession without_caches(
        [&](std::int64_t rows) { return build_llama_graph(config, rows, DType::kFloat32); },
        shared);
    exec::Batch batch;
    const std::vector<mask::Mask> masks = llama_masks(config);
    batch.mask = masks[0], batch.more_masks = {masks.begin() + 1, masks.end()};
    batch.cache = {4, {{7, 2, 0}, {3, 9, 4}}, {0, 0}};
    std::vector<std::vector<std::int32_t>> read(2);  // of each sequence so far
    std::vector<std::int32_t> ids, positions, slots;
    std::int32_t next = 1;
    for (const auto& counts : {std::pair{5, 3}, {4, 1}, {1, 1}, {1, 1}}) {
      batch.offsets = {0, counts.first, counts.first + counts.second};
      batch.cache.lengths[0] += counts.first;
      batch.cache.lengths[1] += counts.second;
      ids.clear();
      for (std::int64_t i = 0; i < batch.rows(); ++i) ids.push_back(next = next * 7 % 48);
      positions = batch.cache.positions(batch.offsets);
      slots = batch.cache.slots(batch.offsets);
      batch.inputs = {{"ids", {ids.data(), DType::kInt32, {batch.rows()}}},
                      {"positions", {positions.data(), DType::kInt32, {batch.rows()}}},
                      {"slots", {slots.data(), DType::kInt32, {batch.rows()}}}};
      // The interpreter begins with the caches that the session's passes left.
      const graph::Graph exact = graph_of(batch.rows());
      cpu::GraphOperands operands;
      operands.mask = batch.mask, operands.more_masks = batch.more_masks;
      operands.offsets = batch.offsets, operands.cache = batch.cache;
      for (const auto& [input, view] : batch.inputs) operands.values[exact.find(input)] = view;
      for (const graph::ValueId id : exact.of_kind(graph::ValueKind::kWeight))
        operands.values[id] = bound.values.at(graph.find(exact.value(id).name));
      std::deque<Tensor> before;
      for (const graph::ValueId id : exact.of_kind(graph::ValueKind::kState)) {
        before.push_back(Tensor::copy_of(session.state(exact.value(id).name)));
        operands.values[id] = std::as_const(before.back()).view();
      }
      const Tensor found = session.run(batch);
      const cpu::GraphResults results = cpu::interpret_graph(exact, operands);
      EXPECT_LT(relative_error(found, results.at(exact.live_outs()[0])), kTolerance) << name;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::int64_t first = batch.offsets[i], count = batch.offsets[i + 1] - first;
        read[i].insert(read[i].end(), ids.begin() + first, ids.begin() + first + count);
        std::vector<std::int32_t> places(read[i].size());
        std::iota(places.begin(), places.end(), 0);
        exec::Batch whole = batch;
        const Dims all = {static_cast<std::int64_t>(read[i].size())};
        whole.inputs = {{"ids", {read[i].data(), DType::kInt32, all}},
                        {"positions", {places.data(), DType::kInt32, all}}};
        whole.offsets = {0, all[0]};
        const Tensor expected = without_caches.run(whole);
        EXPECT_LT(
            relative_error(rows_of(found, first, count), rows_of(expected, all[0] - count, count)),
            kTolerance)
            << name << ", sequence " << i << ", " << batch.cache.lengths[i] << " keys";
      }
    }
    const auto message = [&] {
      try {
        session.run(batch);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    batch.more_masks.push_back(mask::causal());
    EXPECT_THAT(message(),
                HasSubstr(name == "qwen2 window" ? "expected 2 masks" : "expected 1 masks"));
    batch.more_masks.pop_back();
    batch.cache.lengths[1] += 1;  // the slots are of the row before
    EXPECT_THAT(message(), AllOf(HasSubstr("\"slots\", row 1"), HasSubstr("expected slot")));
    batch.cache.pages[1][1] = 2;
    EXPECT_THAT(message(), HasSubstr("page 2 twice"));
    batch.cache.pages[1][1] = 10;
    EXPECT_THAT(message(), HasSubstr("within the cache's 40 rows, got page 10"));
    batch.cache.pages[1] = {3};
    EXPECT_THAT(message(), HasSubstr("sequence 1: expected 2 pages of 4"));
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
  EXPECT_THAT(refusal("base", 0, DType::kFloat32), HasSubstr("rows"));
  EXPECT_THAT(refusal("base", 5, DType::kInt32), HasSubstr("dtype"));
}

}  // namespace
}  // namespace stof::model
