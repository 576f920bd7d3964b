// Times whole forward passes of BERT-base's stack of layers (random weights, 12 layers of 768, 12
// heads, erf GELU, bfloat16) under the BigBird mask: milliseconds of a CUDA graph's replay, from
// the first layer's input to the last hidden states.
//   bench_gpu_encoder_e2e [--json FILE] [--replays N]    all shapes, all variants
//   bench_gpu_encoder_e2e --serve on                      a command a line, an answer in JSON a
//   line:
//     time B S N [VARIANT]    N replays, timed one by one: {"B": .., "S": .., "variant": .., "ms":
//     [..]} describe B S [VARIANT]  the plan mask S FILE             the mask's bits, row by row,
//     least significant bit first weights FILE            safetensors, bfloat16 and float32, under
//     Hugging Face's names input B S FILE          what the first layer reads, float32 [B * S, 768]
//     output B S FILE         the last hidden states for that, likewise
//     tune B S SECONDS        searches from nothing for variant tuned
// so that a script can time short bursts of this and of other programs in turn, and check results.
// Variants, the rows of an ablation: library (an operator a kernel, cuBLASLt, attention over all
// keys), attention (the same with the mask's tiles only), fusion (fused segments, attention over
// all keys), both; and tuned: both, with what the last tune of that shape found.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <list>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

#include <fmt/core.h>

#include "bench/gpu/arguments.h"
#include "core/file.h"
#include "core/text.h"
#include "exec/cuda_session.h"
#include "graph/graph.h"
#include "stof/error.h"
#include "stof/safetensors.h"
#include "tune/cuda_device.h"
#include "tune/tuner.h"

namespace {

using namespace stof;

constexpr const char* kVariants[] = {"library", "attention", "fusion", "both"};
constexpr const char* kTuned = "tuned";

struct Shape {
  std::int64_t batch, seq;
};
constexpr Shape kShapes[] = {{1, 128}, {8, 512}, {16, 2048}, {1, 4096}};

constexpr std::int64_t kHidden = 768, kInner = 3072, kHeads = 12, kMaxSeq = 4096;
constexpr int kLayers = 12;

/// The stack without embeddings, weights named as model::build_bert_graph() names them.
graph::Graph encoder_graph(std::int64_t rows) {
  graph::GraphBuilder builder;
  const auto dense = [&](const std::string& name, graph::ValueId x, std::int64_t in,
                         std::int64_t out) {
    const graph::ValueId product =
        builder.matmul(name, x, builder.weight(name + ".weight", DType::kBFloat16, {out, in}));
    return builder.bias(name + ".add_bias", product,
                        builder.weight(name + ".bias", DType::kBFloat16, {out}));
  };
  const auto norm = [&](const std::string& name, graph::ValueId a, graph::ValueId b) {
    return builder.layer_norm(name, builder.add(name + ".residual", a, b),
                              builder.weight(name + ".gamma", DType::kFloat32, {kHidden}),
                              builder.weight(name + ".beta", DType::kFloat32, {kHidden}), 1e-12);
  };
  graph::ValueId x = builder.input("x", DType::kBFloat16, {rows, kHidden});
  builder.begin_layer(x);
  const std::string layer = "layer.0.";
  const graph::ValueId qkv = dense(layer + "query_key_value", x, kHidden, 3 * kHidden);
  const graph::ValueId context =
      builder.attention(layer + "attention", builder.columns(layer + "query", qkv, 0, kHidden),
                        builder.columns(layer + "key", qkv, kHidden, kHidden),
                        builder.columns(layer + "value", qkv, 2 * kHidden, kHidden), kHeads, kHeads,
                        kHidden / kHeads);
  const graph::ValueId middle = norm(
      layer + "attention_norm", dense(layer + "attention_output", context, kHidden, kHidden), x);
  const graph::ValueId inner = builder.activation(
      layer + "activation", dense(layer + "intermediate", middle, kHidden, kInner),
      graph::Activation::kGeluErf);
  builder.end_layer(
      norm(layer + "output_norm", dense(layer + "output", inner, kInner, kHidden), middle));
  builder.mark_live_out(builder.stamp_layers(kLayers));
  return builder.build();
}

/// As BERT is initialised: normal with deviation 0.02, norms near one.
struct Weights {
  std::list<Tensor> tensors;
  exec::WeightViews views;

  explicit Weights(const graph::Graph& graph) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.02f);
    for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
      const graph::Value& value = graph.value(id);
      Tensor& tensor = tensors.emplace_back(value.dtype, value.shape);
      const float middle = value.name.ends_with("gamma") ? 1 : 0;
      if (value.dtype == DType::kFloat32)
        for (float& x : tensor.as<float>()) x = middle + normal(random);
      else
        for (BFloat16& x : tensor.as<BFloat16>()) x = BFloat16(middle + normal(random));
      views[id] = std::as_const(tensor).view();
    }
  }
};

/// The weights as a checkpoint holds them: query, key and value apart.
void save_weights(const Weights& weights, const graph::Graph& graph, const std::string& path) {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < kLayers; ++i) {
    const std::string ours = "layer." + std::to_string(i) + ".", theirs = "encoder." + ours;
    const auto view = [&](const std::string& name) {
      return weights.views.at(graph.find(ours + name));
    };
    for (const auto& [from, to] : {std::pair{"attention_output", "attention.output.dense"},
                                   {"intermediate", "intermediate.dense"},
                                   {"output", "output.dense"}})
      for (const char* part : {".weight", ".bias"})
        tensors.push_back({theirs + to + part, view(std::string(from) + part)});
    for (const auto& [from, to] : {std::pair{"attention_norm", "attention.output.LayerNorm"},
                                   {"output_norm", "output.LayerNorm"}}) {
      tensors.push_back({theirs + to + ".weight", view(std::string(from) + ".gamma")});
      tensors.push_back({theirs + to + ".bias", view(std::string(from) + ".beta")});
    }
    int third = 0;
    for (const char* name : {"query", "key", "value"}) {
      for (const char* part : {".weight", ".bias"}) {
        TensorView rows = view(std::string("query_key_value") + part);
        rows.shape[0] = kHidden;
        const std::int64_t skip = third * num_elements(rows.shape);
        rows.data = static_cast<const BFloat16*>(rows.data) + skip;
        tensors.push_back({theirs + "attention.self." + name + part, rows});
      }
      ++third;
    }
  }
  save_safetensors(path, tensors);
}

void save_floats(const Tensor& elements, const std::string& path) {
  const Tensor wide = Tensor::converted(elements.view(), DType::kFloat32);
  AtomicFile file(path);
  file.write(wide.data(), wide.bytes());
  file.commit();
}

struct Timing {
  std::vector<float> ms;
  bool good = true;
  Tensor states;
};

class Bench {
 public:
  Bench()
      : device_(cuda::Device::open()),
        graph_(encoder_graph(8)),
        host_weights_(graph_),
        weights_(std::make_shared<const exec::CudaWeights>(device_, graph_, host_weights_.views)) {}

  const std::string& gpu() const { return device_.facts().name; }

  Timing time(const Shape& shape, int replays, const std::string& variant) {
    const Tensor x = input(shape);
    exec::Batch batch;
    for (std::int64_t b = 0; b <= shape.batch; ++b) batch.offsets.push_back(b * shape.seq);
    batch.inputs = {{"x", x.view()}};
    const bool sparse = variant == "attention" || variant == "both" || variant == kTuned;
    batch.mask = sparse ? bigbird() : mask::all();
    Timing timing;
    session(variant).replay(batch, [&](const auto& launch, const exec::CudaResult& result) {
      const cuda::Driver& driver = cuda::Driver::instance();
      cuda::CUevent begin = nullptr, end = nullptr;
      driver.check(driver.cuEventCreate(&begin, 0), "creating an event");
      driver.check(driver.cuEventCreate(&end, 0), "creating an event");
      for (int i = 0; i < replays; ++i) {
        driver.check(driver.cuEventRecord(begin, result.stream), "recording");
        launch();
        driver.check(driver.cuEventRecord(end, result.stream), "recording");
        driver.check(driver.cuEventSynchronize(end), "waiting");
        driver.check(driver.cuEventElapsedTime(&timing.ms.emplace_back(), begin, end), "timing");
      }
      timing.states = Tensor(result.dtype, {result.rows, result.columns});
      driver.check(driver.cuMemcpyDtoHAsync(timing.states.data(), result.address,
                                            timing.states.bytes(), result.stream),
                   "downloading");
      driver.check(driver.cuStreamSynchronize(result.stream), "downloading");
      for (const BFloat16 value : std::as_const(timing.states).as<BFloat16>())
        timing.good &= std::isfinite(static_cast<float>(value));
      driver.cuEventDestroy(begin);
      driver.cuEventDestroy(end);
    });
    return timing;
  }

  /// What the search found in `seconds`, which begins with an empty database.
  tune::TuneResult tune(const Shape& shape, double seconds) {
    tune::TuningProblem problem;
    problem.graph_of = encoder_graph;
    for (std::int64_t b = 0; b <= shape.batch; ++b) problem.batch.offsets.push_back(b * shape.seq);
    problem.batch.mask = bigbird();
    tune::DeviceBench measuring(tune::make_cuda_device(), problem);
    std::string folder = (std::filesystem::temp_directory_path() / "stof_e2e_XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error(folder + ": cannot be made");
    tune::TuneOptions options;
    options.budget_seconds = seconds;
    tune::TuneResult result = stof::tune::tune(problem, measuring, tune::Database(folder), options);
    std::filesystem::remove_all(folder);
    exec::SessionOptions session;
    session.batches_repeat = true;
    session.scheme = result.scheme;
    session.choices = result.choices;
    sessions_[kTuned] =
        std::make_unique<exec::CudaSession>(device_, encoder_graph, weights_, session);
    return result;
  }

  exec::ExecutionPlan plan(const Shape& shape, const std::string& variant) {
    return session(variant).plan(shape.batch * shape.seq);
  }

  /// What the first layer reads: normal, the same for every shape's common rows.
  static Tensor input(const Shape& shape) {
    Tensor x(DType::kBFloat16, {shape.batch * shape.seq, kHidden});
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (BFloat16& value : x.as<BFloat16>()) value = BFloat16(normal(random));
    return x;
  }

  static mask::Mask bigbird() { return mask::bigbird(64, 1, 2, 3, 1234); }

  void save_weights(const std::string& path) const { ::save_weights(host_weights_, graph_, path); }

 private:
  exec::CudaSession& session(const std::string& variant) {
    if (variant == kTuned && sessions_.count(kTuned) == 0)
      throw std::runtime_error("variant tuned: expected a tune command before");
    const bool known = variant == kTuned || std::find(std::begin(kVariants), std::end(kVariants),
                                                      variant) != std::end(kVariants);
    if (!known)
      throw std::runtime_error("variant " + variant +
                               ": expected library, attention, fusion, both or tuned");
    auto& session = sessions_[variant];
    if (session == nullptr) {
      exec::SessionOptions options;
      options.batches_repeat = true;
      if (variant == "library" || variant == "attention") {
        options.switches.fuse = false;
        options.switches.disabled.insert("gemm_sm90");
      }
      session = std::make_unique<exec::CudaSession>(device_, encoder_graph, weights_, options);
    }
    return *session;
  }

  cuda::Device device_;
  graph::Graph graph_;
  Weights host_weights_;
  std::shared_ptr<const exec::CudaWeights> weights_;
  std::map<std::string, std::unique_ptr<exec::CudaSession>> sessions_;
};

float median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_all(Bench& bench, int replays, std::FILE* json) {
  for (const Shape& shape : kShapes)
    for (const char* variant : kVariants) {
      const auto start = std::chrono::steady_clock::now();
      bench.time(shape, 3, variant);
      const double prepared =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const Timing timing = bench.time(shape, replays, variant);
      std::printf(
          "BERT-base (%2ld, %4ld) bigbird %-9s %9.4f ms, best %9.4f; prepared in %5.2f s%s\n",
          shape.batch, shape.seq, variant, median(timing.ms),
          *std::min_element(timing.ms.begin(), timing.ms.end()), prepared,
          timing.good ? "" : " BAD: not finite");
      std::printf("    %s\n", bench.plan(shape, variant).describe().c_str());
      if (json != nullptr)
        std::fprintf(json,
                     "{\"gpu\":\"%s\",\"model\":\"bert-base\",\"B\":%ld,\"S\":%ld,\"mask\":"
                     "\"bigbird\",\"impl\":\"stof\",\"variant\":\"%s\",\"ms\":%.4f,\"tune_s\":0,"
                     "\"protocol\":"
                     "\"median of %d replays\",\"good\":%s}\n",
                     bench.gpu().c_str(), shape.batch, shape.seq, variant, median(timing.ms),
                     replays, timing.good ? "true" : "false");
      std::fflush(stdout);
    }
}

/// Row by row, least significant bit first, as bench_gpu_attention --masks writes them.
void save_mask(std::int64_t seq, const std::string& path) {
  const mask::Mask bound = Bench::bigbird().bind({1, 1, seq, seq});
  std::vector<std::uint64_t> words;
  for (std::int64_t q = 0; q < seq; ++q)
    for (std::int64_t k = 0; k < seq; k += 64) words.push_back(bound.row_bits(0, 0, q, k));
  AtomicFile file(path);
  file.write(words.data(), words.size() * sizeof words[0]);
  file.commit();
}

/// A command's answer.
std::string answer(Bench& bench, const std::string& line) {
  std::istringstream words(line);
  std::string verb, file, variant = "both";
  Shape shape{1, 0};
  int count = 0;
  words >> verb;
  if (verb == "mask" || verb == "weights") {
    if (verb == "mask") words >> shape.seq;
    if (!(words >> file) || (verb == "mask" && (shape.seq < 64 || shape.seq % 64 != 0)))
      throw std::runtime_error(
          "expected \"mask S FILE\", S in multiples of 64, or \"weights FILE\"");
    verb == "mask" ? save_mask(shape.seq, file) : bench.save_weights(file);
    return "{\"" + verb + "\": " + quote_text(file, 4096) + "}";
  }
  words >> shape.batch >> shape.seq;
  if (verb == "time") words >> count;
  if (verb == "input" || verb == "output") words >> file;
  if (words.fail() || shape.batch < 1 || shape.seq < 1 || shape.seq > kMaxSeq)
    throw std::runtime_error("expected a command, B and S up to " + std::to_string(kMaxSeq));
  if (verb == "tune") {
    double seconds = 0;
    if (!(words >> seconds) || !(seconds > 0))
      throw std::runtime_error("expected tune B S SECONDS");
    const tune::TuneResult result = bench.tune(shape, seconds);
    const tune::SearchResult& search = result.search;
    return fmt::format(
        "{{\"tune_s\": {:.1f}, \"scheme\": \"{}\", \"untuned_us\": {:.1f}, \"tuned_us\": {:.1f}, "
        "\"measured\": {}, \"faulty\": {}}}",
        search.seconds, result.scheme.hex(), search.compared.front().end_to_end.microseconds,
        search.best().end_to_end.microseconds, search.measured, search.failed);
  }
  words >> variant;
  if (verb == "describe") return bench.plan(shape, variant).to_json();
  if (verb == "input") {
    save_floats(Bench::input(shape), file);
    return "{\"input\": " + quote_text(file, 4096) + "}";
  }
  if (verb == "output") {
    save_floats(bench.time(shape, 1, variant).states, file);
    return "{\"output\": " + quote_text(file, 4096) + "}";
  }
  if (verb != "time" || count < 1)
    throw std::runtime_error("expected time, tune, describe, mask, weights, input or output");
  const Timing timing = bench.time(shape, count, variant);
  if (!timing.good) throw std::runtime_error("the result is not finite");
  std::string text = fmt::format("{{\"B\": {}, \"S\": {}, \"variant\": \"{}\", \"ms\": [",
                                 shape.batch, shape.seq, variant);
  for (std::size_t i = 0; i < timing.ms.size(); ++i)
    text += fmt::format("{}{:.5f}", i == 0 ? "" : ", ", timing.ms[i]);
  return text + "]}";
}

/// What went wrong with one line is its answer; the next one may go well.
void serve(Bench& bench) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::printf("%s\n", answer(bench, line).c_str());
    } catch (const std::exception& error) {
      std::printf("{\"error\": %s}\n", quote_text(error.what(), 4096).c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string serve_text, replays = "15";
  const bench::Arguments arguments(argc, argv, {{"--serve", &serve_text}, {"--replays", &replays}});
  arguments.expect_names({});
  Bench bench;
  if (serve_text.empty()) {
    std::printf("%s\n", bench.gpu().c_str());
    run_all(bench, std::stoi(replays), arguments.json());
  } else {
    serve(bench);
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
