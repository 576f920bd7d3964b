// The CPU's runners and sessions against the interpreter.

#include "exec/cpu_session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "backend/cpu/graph/interpret.h"
#include "backend/cpu/thread_scope.h"
#include "cpu/tolerance.h"
#include "model/bert_graph.h"
#include "stof/error.h"

namespace stof::exec {
namespace {

using fusion::Scheme;
using graph::Graph;
using graph::GraphBuilder;
using graph::ValueId;

/// Random tensors for weights and inputs; ids and positions count up.
class Operands {
 public:
  explicit Operands(const Graph& graph, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.5f);
    for (std::size_t i = 0; i < graph.values().size(); ++i) {
      const graph::Value& value = graph.values()[i];
      if (value.kind == graph::ValueKind::kActivation) continue;
      Tensor& tensor = tensors_.emplace_back(value.dtype, value.shape);
      std::int32_t next = 0;
      if (value.name == "slots")  // each its own, and none for some
        for (std::int32_t& slot : tensor.as<std::int32_t>()) {
          slot = next % 4 == 3 ? -1 : static_cast<std::int32_t>(value.shape[0]) - next;
          ++next;
        }
      else if (value.dtype == DType::kInt32)
        for (std::int32_t& id : tensor.as<std::int32_t>()) id = next++ % 5;
      else
        for (float& x : tensor.as<float>()) x = normal(random);
      views[static_cast<ValueId>(i)] = std::as_const(tensor).view();
    }
  }
  WeightViews views;

 private:
  std::list<Tensor> tensors_;
};

Batch batch_of(const Graph& graph, const Operands& operands, std::vector<std::int64_t> offsets) {
  Batch batch;
  for (const ValueId id : graph.of_kind(graph::ValueKind::kInput)) {
    TensorView view = operands.views.at(id);
    view.shape[0] = offsets.back();
    batch.inputs.emplace_back(graph.value(id).name, view);
  }
  batch.offsets = std::move(offsets);
  batch.mask = mask::window(2, 1);
  return batch;
}

constexpr std::int64_t kRows = 16;

Graph bert(std::int64_t rows = kRows) {
  model::BertConfig config;
  config.hidden_size = 16;
  config.num_layers = 1;
  config.num_heads = 2;
  config.intermediate_size = 24;
  config.vocab_size = 10;
  config.max_positions = 20;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-3f;
  return model::build_bert_graph(config, rows, DType::kFloat32);
}

/// A LLaMA-like layer: both outputs of residual and norm, gate, rotation, no biases.
Graph gated() {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, {kRows, 16});
  const ValueId positions = builder.input("positions", DType::kInt32, {kRows});
  const auto weight = [&](const char* name, const Dims& shape) {
    return builder.weight(name, DType::kFloat32, shape);
  };
  const ValueId normed = builder.rms_norm("norm", x, weight("gamma", {16}), 1e-3);
  const ValueId qkv = builder.rope("rope", builder.matmul("qkv", normed, weight("wqkv", {32, 16})),
                                   positions, weight("frequencies", {4}), 2, 1, 8);
  const ValueId cache = builder.state("cache", DType::kFloat32, {kRows + 3, 16});
  const ValueId slots = builder.input("slots", DType::kInt32, {kRows});
  builder.cache_store("stored", qkv, slots, cache, 2, 1, 8);
  const ValueId context = builder.attention("attention", builder.columns("q", qkv, 0, 16),
                                            builder.columns("k", qkv, 16, 8),
                                            builder.columns("v", qkv, 24, 8), 2, 1, 8, 0.3);
  const ValueId sum =
      builder.add("residual", builder.matmul("out", context, weight("wo", {16, 16})), x);
  const ValueId second = builder.rms_norm("norm2", sum, weight("gamma2", {16}), 1e-3);
  const ValueId gate = builder.matmul("gate", second, weight("wgate", {24, 16}));
  const ValueId up = builder.matmul("up", second, weight("wup", {24, 16}));
  const ValueId inner =
      builder.multiply("product", builder.activation("silu", gate, graph::Activation::kSilu), up);
  builder.mark_live_out(
      builder.add("residual2", builder.matmul("down", inner, weight("wdown", {16, 24})), sum));
  return builder.build();
}

/// A norm deferred behind a product, its squares summed up where its rows are made.
Graph deferred() {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::kFloat32, {kRows, 64});
  const ValueId weight = builder.weight("weight", DType::kFloat32, {24, 64});
  const ValueId sum =
      builder.add("sum", builder.activation("silu", x, graph::Activation::kSilu), x);
  const ValueId squares = builder.row_squares("squares", sum);
  const ValueId product = builder.matmul("product", sum, weight);
  builder.mark_live_out(builder.rms_scale("scaled", product, squares, 1e-3));
  return builder.build();
}

cpu::GraphOperands oracle_operands(const Operands& operands, const Batch& batch) {
  cpu::GraphOperands all;
  all.values = operands.views;
  all.mask = batch.mask;
  all.offsets = batch.offsets;
  return all;
}

void expect_close(const float* found, const Tensor& want, const std::string& what) {
  const auto expected = want.as<float>();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found[i])) << what << ", element " << i;
    difference += std::pow(found[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LE(std::sqrt(difference), 3e-6 * std::sqrt(norm)) << what;
}

/// Every legal segment by every candidate, outputs poisoned and guarded. Returns how many ran.
int check_segments(const Graph& graph, const std::vector<std::int64_t>& offsets) {
  const Operands operands(graph);
  const Batch batch = batch_of(graph, operands, offsets);
  const cpu::GraphResults values = interpret_graph(graph, oracle_operands(operands, batch));
  std::optional<VarlenPlan> plan;
  if (const auto problem = attention_problem(graph))
    plan = plan_varlen_attention(*problem, batch.mask, batch.offsets, batch.offsets);
  const cpu::AttentionSlot slot{plan ? &*plan : nullptr};
  int ran = 0;
  for (int first = 0; first < graph.num_operators(); ++first)
    for (int last = first; last < graph.num_operators(); ++last) {
      if (!fusion::legality(graph, first, last).empty()) continue;
      const fusion::Segment segment = fusion::make_segment(graph, first, last);
      cpu::GraphOperands inputs = oracle_operands(operands, batch);
      for (const auto& [id, tensor] : values) inputs.values[id] = tensor.view();
      const std::vector<Tensor> expected = interpret_segment(graph, segment, inputs);
      for (const fusion::Choice& choice : cpu::candidates(graph, segment)) {
        constexpr std::size_t kGuard = 16;
        constexpr float kUntouched = -12345;
        cpu::PackedWeights packed;
        cpu::SegmentBindings bindings{{}, &slot, &packed};
        bindings.addresses.resize(graph.values().size());
        for (const auto& [id, view] : inputs.values)
          bindings.addresses[static_cast<std::size_t>(graph.storage(id))] =
              const_cast<void*>(view.data);
        std::vector<std::vector<float>> outputs;
        for (const Tensor& tensor : expected) {
          outputs.emplace_back(static_cast<std::size_t>(tensor.size()), std::nanf(""));
          outputs.back().resize(outputs.back().size() + kGuard, kUntouched);
        }
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          const ValueId storage = graph.storage(segment.outputs[i]);
          bindings.addresses[static_cast<std::size_t>(storage)] = outputs[i].data();
          if (storage != segment.outputs[i])  // an update in place
            std::copy_n(static_cast<const float*>(operands.views.at(storage).data),
                        expected[i].size(), outputs[i].data());
        }
        const std::string what = describe(graph, segment) + " by " + choice.text();
        make_runner(graph, segment, choice, bindings)->run(offsets.back());
        ++ran;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          expect_close(outputs[i].data(), expected[i], what);
          for (std::size_t g = 0; g < kGuard; ++g)
            EXPECT_EQ(outputs[i][outputs[i].size() - 1 - g], kUntouched) << what;
        }
      }
    }
  return ran;
}

TEST(CpuSegments, EveryCandidateOfEveryLegalSegmentGivesTheInterpretersNumbers) {
  EXPECT_GE(check_segments(bert(), {0, 7, 12, kRows}), 80);
  EXPECT_GE(check_segments(gated(), {0, 5, kRows}), 46);
  EXPECT_GE(check_segments(deferred(), {0, kRows}), 20);
}

TEST(CpuSegments, RefuseWhatTheyDoNotRunByName) {
  const Graph graph = bert();
  const fusion::Segment segment = fusion::make_segment(graph, 2, 3);
  for (const fusion::Choice& choice : {fusion::Choice{"row", {{"chunk", 0}}}, {"cublaslt", {}}}) {
    try {
      cpu::make_runner(graph, segment, choice, {});
      ADD_FAILURE() << choice.text();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find(choice.family), std::string::npos);
    }
  }
}

TEST(CpuSession, EveryLegalSchemeOfABertLayerGivesTheInterpretersNumbers) {
  const Graph graph = bert();
  const Operands operands(graph);
  const Batch batch = batch_of(graph, operands, {0, 7, 12, kRows});
  const cpu::GraphResults expected = interpret_graph(graph, oracle_operands(operands, batch));
  const Tensor& want = expected.at(graph.live_outs().at(0));
  const auto weights = std::make_shared<CpuWeights>(graph, operands.views);
  const auto [begin, end] = graph.layer_range(0);
  const int size = end - begin + 1;
  std::vector<std::vector<bool>> runs(static_cast<std::size_t>(size));
  for (int first = 0; first < size; ++first)
    for (int last = 0; last < size; ++last)
      runs[static_cast<std::size_t>(first)].push_back(
          last >= first && fusion::legality(graph, begin + first, begin + last).empty() &&
          !cpu::candidates(graph, fusion::make_segment(graph, begin + first, begin + last))
               .empty());
  int schemes = 0;
  for (unsigned bits = 0; bits < 1u << (size - 1); ++bits) {
    std::vector<bool> flags(1, false);
    for (int i = 0; i < size - 1; ++i) flags.push_back((bits >> i & 1) != 0);
    const Scheme scheme(flags);
    bool good = true;
    for (const auto& [first, last] : scheme.segments())
      good = good && runs[static_cast<std::size_t>(first)][static_cast<std::size_t>(last)];
    if (!good) continue;
    SessionOptions options;
    options.scheme = scheme;
    CpuSession session([](std::int64_t rows) { return bert(rows); }, weights, options);
    session.plan(kRows).validate();
    const Tensor found = session.run(batch);
    expect_close(found.as<float>().data(), want, scheme.text());
    ++schemes;
  }
  EXPECT_GE(schemes, 200);
}

TEST(CpuSession, RunsBatchesOfAnySizeFromManyThreadsOnSharedWeights) {
  const Graph graph = bert();
  const Operands operands(graph);
  const auto weights = std::make_shared<CpuWeights>(graph, operands.views);
  CpuSession first([](std::int64_t rows) { return bert(rows); }, weights);
  CpuSession second([](std::int64_t rows) { return bert(rows); }, weights);
  std::vector<Batch> batches;
  std::vector<Tensor> expected;
  for (const std::vector<std::int64_t>& offsets :
       {std::vector<std::int64_t>{0, 16}, {0, 3, 9}, {0, 1}, {0, 0, 11}, {0, 15}}) {
    batches.push_back(batch_of(graph, operands, offsets));
    cpu::GraphOperands all = oracle_operands(operands, batches.back());
    const Graph exact = bert(offsets.back());
    for (const auto& [name, view] : batches.back().inputs) all.values[exact.find(name)] = view;
    expected.push_back(interpret_graph(exact, all).at(exact.live_outs().at(0)));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const cpu::ThreadScope one(1);
      for (std::size_t i = 0; i < 20; ++i) {
        const std::size_t which = (i * 3 + static_cast<std::size_t>(t)) % batches.size();
        const Tensor found = (t % 2 == 0 ? first : second).run(batches[which]);
        EXPECT_EQ(found.shape(), expected[which].shape());
        expect_close(found.as<float>().data(), expected[which], "thread " + std::to_string(t));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(CpuSession, ReadsNoWeightThatWasPackedWhereItLay) {
  const Graph graph = bert();
  const Operands operands(graph);
  const Batch batch = batch_of(graph, operands, {0, 5, 16});
  const Tensor want =
      interpret_graph(graph, oracle_operands(operands, batch)).at(graph.live_outs().at(0));
  const auto weights = std::make_shared<CpuWeights>(graph, operands.views);
  int packed = 0;
  weights->pack(graph, [&](ValueId id) {
    EXPECT_EQ(graph.value(id).shape.rank(), 2) << graph.value(id).name;
    const TensorView& view = operands.views.at(id);
    std::fill_n(static_cast<float*>(const_cast<void*>(view.data)), num_elements(view.shape),
                std::nanf(""));
    ++packed;
  });
  EXPECT_EQ(packed, 4 * graph.num_layers());
  CpuSession session([](std::int64_t rows) { return bert(rows); }, weights);
  expect_close(session.run(batch).as<float>().data(), want, "packed");

  SessionOptions plain;
  const ExecutionPlan plan = session.plan(kRows);
  for (const PlannedSegment& planned : plan.segments())
    if (planned.choice.family == "onednn")
      plain.choices[planned.hash] = {"onednn", {{"packed", 0}}};
  CpuSession refused([](std::int64_t rows) { return bert(rows); }, weights, plain);
  EXPECT_THROW(refused.run(batch), Error);
}

TEST(CpuSession, NamesWhatDoesNotFit) {
  const Graph graph = bert();
  Operands operands(graph);
  CpuSession session([](std::int64_t rows) { return bert(rows); },
                     std::make_shared<CpuWeights>(graph, operands.views));
  const auto message = [&](const Batch& batch) -> std::string {
    try {
      session.run(batch);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Batch batch = batch_of(graph, operands, {0, 8});
  batch.inputs.pop_back();
  EXPECT_NE(message(batch).find("\"positions\" is missing"), std::string::npos);
  batch = batch_of(graph, operands, {0, 8});
  batch.inputs[0].second.shape[0] = 9;
  EXPECT_NE(message(batch).find("input \"ids\": expected a contiguous int32[8]"),
            std::string::npos);
  EXPECT_NE(message(Batch{}).find("at least one row"), std::string::npos);
  batch.offsets = {0, 8, 4, 8};
  EXPECT_NE(message(batch).find("ascending"), std::string::npos);
  WeightViews views = operands.views;
  views.erase(graph.find("layer.0.output.weight"));
  EXPECT_THROW(CpuWeights(graph, views), Error);
}

}  // namespace
}  // namespace stof::exec
