#pragma once
// A small encoder to tune in a test, on the CPU and on one with planted faults.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "stof/error.h"
#include "tune/cpu_device.h"
#include "tune/tuner.h"
#include "tune/worker.h"

namespace stof::tune {

// Children are forked: this process must not use OpenMP, which a copy of it then could not use.

/// Two layers of a small encoder, with the operators of BERT.
inline graph::Graph small_graph(std::int64_t rows) {
  graph::GraphBuilder builder;
  const auto weight = [&](const char* name, const Dims& shape) {
    return builder.weight(name, DType::kFloat32, shape);
  };
  const graph::ValueId ids = builder.input("ids", DType::kInt32, {rows});
  const graph::ValueId x = builder.embedding("embedding", ids, weight("words", {50, 32}),
                                             builder.input("positions", DType::kInt32, {rows}),
                                             weight("places", {16, 32}));
  builder.begin_layer(x);
  const auto product = [&](const std::string& name, graph::ValueId in, std::int64_t from,
                           std::int64_t to) {
    const std::string at = "layer.0." + name;
    const graph::ValueId y =
        builder.matmul(at, in, builder.weight(at + ".weight", DType::kFloat32, {to, from}));
    return builder.bias(at + "_bias", y, builder.weight(at + ".bias", DType::kFloat32, {to}));
  };
  const auto norm = [&](const std::string& name, graph::ValueId a, graph::ValueId b) {
    const std::string at = "layer.0." + name;
    return builder.layer_norm(at, builder.add(at + "_add", a, b),
                              builder.weight(at + ".gamma", DType::kFloat32, {32}),
                              builder.weight(at + ".beta", DType::kFloat32, {32}), 1e-12);
  };
  const graph::ValueId qkv = product("qkv", x, 32, 96);
  const graph::ValueId attention =
      builder.attention("layer.0.attention", builder.columns("layer.0.q", qkv, 0, 32),
                        builder.columns("layer.0.k", qkv, 32, 32),
                        builder.columns("layer.0.v", qkv, 64, 32), 2, 2, 16);
  const graph::ValueId middle = norm("norm1", product("output", attention, 32, 32), x);
  const graph::ValueId wide = builder.activation(
      "layer.0.activation", product("up", middle, 32, 64), graph::Activation::kGeluErf);
  const graph::ValueId out = norm("norm2", product("down", wide, 64, 32), middle);
  builder.end_layer(out);
  builder.mark_live_out(builder.stamp_layers(2));
  return builder.build();
}

inline TuningProblem small_problem() {
  return {small_graph, {{0, 96, 200}, mask::parse("window(8,8)")}};
}

/// The CPU with faulty candidates in front of the good ones of every row segment and product.
class FaultyDevice : public Device {
 public:
  FaultyDevice() : cpu_(make_cpu_device(1)) {}

  Environment environment() const override { return cpu_->environment(); }
  std::vector<fusion::Choice> candidates(const graph::Graph& graph,
                                         const fusion::Segment& segment) override {
    std::vector<fusion::Choice> list = cpu_->candidates(graph, segment);
    if (list.empty() || list.front().family == "attention") return list;
    std::vector<const char*> faults = {"nan", "block", "unwritten", "behind", "inputs", "throw"};
    // Each of these costs a process.
    if (segment.family == fusion::Family::kEmbedding)
      faults.insert(faults.end(), {"endless", "crash", "exit"});
    for (const char* fault : faults) list.insert(list.begin(), {fault, list.back().parameters});
    return list;
  }
  fusion::Scheme untuned_scheme(const graph::Graph& graph) override {
    return cpu_->untuned_scheme(graph);
  }
  bool is_library(const std::string& family) const override { return cpu_->is_library(family); }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    if (bytes == bytes_lacking) throw Error(ErrorCode::kOutOfMemory, "planted: no memory");
    return cpu_->allocate(bytes);
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    cpu_->upload(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    cpu_->download(to, from, bytes);
  }
  void synchronize() override {}
  std::vector<double> time(const std::vector<Contender>& contenders, double seconds) override {
    return cpu_->time(contenders, seconds);
  }
  fusion::MachineFacts facts() const override { return cpu_->facts(); }
  std::int64_t cache_bytes() const override { return 1 << 20; }

  std::unique_ptr<Prepared> prepare(const graph::Graph& graph, const fusion::Segment& segment,
                                    const fusion::Choice& choice,
                                    const std::vector<void*>& addresses,
                                    const BatchShape& batch) override {
    const std::vector<fusion::Choice> good = cpu_->candidates(graph, segment);
    if (choice.family == good.front().family)
      return cpu_->prepare(graph, segment, choice, addresses, batch);
    if (choice.family == "throw") throw Error(ErrorCode::kUnsupported, "planted: no such kernel");
    if (choice.family == "lacking") throw Error(ErrorCode::kInvalidArgument, "planted: no chunk");
    if (choice.family == "no memory") throw Error(ErrorCode::kOutOfMemory, "planted: no memory");
    Fault fault;
    fault.kind = choice.family;
    const graph::Value& output = graph.value(segment.outputs.front());
    fault.output = static_cast<float*>(addresses[static_cast<std::size_t>(segment.outputs[0])]);
    fault.elements = num_elements(output.shape);
    fault.input = static_cast<char*>(
        addresses[static_cast<std::size_t>(graph.storage(segment.inputs.front()))]);
    fault.rows = batch.rows();
    fault.inner = cpu_->prepare(graph, segment, good.front(), addresses, batch);
    return std::make_unique<Fault>(std::move(fault));
  }

 private:
  struct Fault : Prepared {
    std::string kind;
    float* output = nullptr;
    std::int64_t elements = 0, rows = 0;
    char* input = nullptr;
    std::unique_ptr<Prepared> inner;

    void launch() override {
      // Each is right on few rows, as a kernel with a fault in its tiles is.
      if (kind == "crash" && rows > 100) {
        std::signal(SIGSEGV, SIG_DFL);  // sanitizers handle it and exit
        std::raise(SIGSEGV);
      }
      if (kind == "exit") ::_exit(3);
      while (kind == "endless") ::usleep(1000);
      const float before = output[elements / 2];
      inner->launch();
      if (kind == "nan" && rows > 100) output[elements - 1] = std::nanf("");
      if (kind == "block" && rows > 100)
        for (std::int64_t i = 0; i < elements / 3; ++i) output[i] += 1;
      if (kind == "unwritten") output[elements / 2] = before;
      if (kind == "behind") output[elements] = 0;
      if (kind == "inputs") input[0] ^= 1;
    }
  };

  std::unique_ptr<Device> cpu_;

 public:
  std::size_t bytes_lacking = 0;  ///< so many are never to be had
};

class Tuner : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "stof_tuner_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

inline StartChild cpu_child() {
  return fork_child(
      [] { return std::make_unique<DeviceBench>(make_cpu_device(1), small_problem()); });
}

}  // namespace stof::tune
