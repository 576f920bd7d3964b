// Times every fused segment that runs untuned against the same operators from library parts: the
// longest beginnings that cuBLASLt has epilogues for, and one row kernel for each operator left.
//   bench_gpu_segments [--json FILE] [--seconds N] [MODEL...]
// Layers of five models' shapes in bfloat16, attention left out, at 128, 4096 and 32768 rows.
//
// Protocol: the tuner's. Graphs of at least 200 us of launches over memory that rotates through
// more than twice the second-level cache, replayed in turn after a rest where rounds are long;
// medians. Of cuBLASLt the fastest of its first algorithms counts, of the fused segment what is
// chosen without measuring. Equal segments of several models are timed once.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "backend/cuda/device.h"
#include "backend/cuda/segments/segments.h"
#include "bench/gpu/arguments.h"
#include "graph/graph.h"
#include "stof/error.h"
#include "tune/cuda_device.h"

namespace {

using namespace stof;
using fusion::Choice;
using fusion::Segment;
using graph::Graph;
using graph::ValueId;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRows[] = {128, 4096, 32768};
/// Algorithms of the library that are timed for a product, and what is less than a difference.
constexpr std::size_t kAlgorithms = 3;
constexpr double kNoise = 0.02;

struct Model {
  const char* name;
  std::int64_t hidden, heads, kv_heads, inner;
  bool norm_first, bias, rms;
  graph::Activation activation;  ///< kSilu: of a gate, behind RoPE
};
constexpr Model kModels[] = {
    {"bert-base", 768, 12, 12, 3072, false, true, false, graph::Activation::kGeluErf},
    {"bert-large", 1024, 16, 16, 4096, false, true, false, graph::Activation::kGeluErf},
    {"gpt2", 768, 12, 12, 3072, true, true, false, graph::Activation::kGeluTanh},
    {"llama-1b", 2048, 32, 8, 8192, true, false, true, graph::Activation::kSilu},
    {"t5-base", 768, 12, 12, 3072, true, false, true, graph::Activation::kRelu},
    {"vit-base", 768, 12, 12, 3072, true, true, false, graph::Activation::kGeluErf},
};

/// One layer, from the sums of the layer before to its own.
class LayerBuilder {
 public:
  LayerBuilder(const Model& model, std::int64_t rows) : model_(model), rows_(rows) {}

  Graph build() {
    const bool gated = model_.activation == graph::Activation::kSilu;
    const std::int64_t hidden = model_.hidden, inner = model_.inner, dim = hidden / model_.heads;
    const std::int64_t kv = model_.kv_heads * dim;
    const ValueId x = builder_.input("x", DType::kBFloat16, {rows_, hidden});
    const ValueId positions = gated ? builder_.input("positions", DType::kInt32, {rows_}) : x;
    builder_.begin_layer(x);
    ValueId qkv = dense("qkv", model_.norm_first ? norm("norm1", x) : x, hidden, hidden + 2 * kv);
    if (gated)
      qkv = builder_.rope("rope", qkv, positions,
                          builder_.weight("frequencies", DType::kFloat32, {dim / 2}), model_.heads,
                          model_.kv_heads, dim);
    const ValueId context = builder_.attention(
        "attention", builder_.columns("q", qkv, 0, hidden), builder_.columns("k", qkv, hidden, kv),
        builder_.columns("v", qkv, hidden + kv, kv), model_.heads, model_.kv_heads, dim);
    ValueId sum = builder_.add("sum1", dense("out", context, hidden, hidden), x);
    if (!model_.norm_first) sum = norm("norm1", sum);
    const ValueId up = dense("up", model_.norm_first ? norm("norm2", sum) : sum, hidden,
                             gated ? 2 * inner : inner);
    ValueId activated = graph::kNoId;
    if (gated) {
      const ValueId gate = builder_.activation("activation", builder_.columns("gate", up, 0, inner),
                                               model_.activation);
      activated = builder_.multiply("gated", builder_.columns("half", up, inner, inner), gate);
    } else {
      activated = builder_.activation("activation", up, model_.activation);
    }
    sum = builder_.add("sum2", dense("down", activated, inner, hidden), sum);
    if (!model_.norm_first) sum = norm("norm2", sum);
    builder_.end_layer(sum);
    builder_.mark_live_out(sum);
    return builder_.build();
  }

 private:
  ValueId dense(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const ValueId y =
        builder_.matmul(name, x, builder_.weight(name + ".weight", DType::kBFloat16, {out, in}));
    if (!model_.bias) return y;
    return builder_.bias(name + ".add_bias", y,
                         builder_.weight(name + ".bias", DType::kBFloat16, {out}));
  }

  ValueId norm(const std::string& name, ValueId x) {
    const Dims width{model_.hidden};
    const ValueId gamma = builder_.weight(name + ".gamma", DType::kFloat32, width);
    if (model_.rms) return builder_.rms_norm(name, x, gamma, 1e-6);
    return builder_.layer_norm(name, x, gamma,
                               builder_.weight(name + ".beta", DType::kFloat32, width), 1e-12);
  }

  const Model& model_;
  std::int64_t rows_;
  graph::GraphBuilder builder_;
};

struct Piece {
  Segment segment;
  std::vector<Choice> choices;  ///< the one to use first
};

/// A fused segment and its library parts.
struct Case {
  const Model* model;
  std::int64_t rows;
  const Graph* graph;
  Piece fused;
  std::vector<Piece> parts;
};

/// "up: bias, gelu_erf"
std::string text_of(const Graph& graph, const Piece& piece) {
  std::string text = graph.op(piece.segment.first).name;
  for (std::size_t i = 0; i < piece.segment.steps.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ": " : ", ", to_string(piece.segment.steps[i].step));
  return text;
}

class Bench {
 public:
  explicit Bench(std::unique_ptr<tune::Device> device) : device_(std::move(device)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1);
    elements_.resize(1 << 22);
    for (BFloat16& x : elements_) x = BFloat16(normal(random) / 32);
    vector_.resize(1 << 16);
    for (float& x : vector_) x = 1 + normal(random) / 8;
    positions_.resize(1 << 16);
    for (std::size_t i = 0; i < positions_.size(); ++i)
      positions_[i] = static_cast<std::int32_t>(i % 2048);
  }

  std::vector<Case> cases_of(const Model& model, std::int64_t rows, const Graph& graph) {
    std::vector<Case> cases;
    for (const Segment& segment : decode(graph, device_->untuned_scheme(graph))) {
      if (segment.first == segment.last) continue;
      Case one{&model, rows, &graph, {segment, device_->candidates(graph, segment)}, {}};
      for (int first = segment.first; first <= segment.last;) {
        one.parts.push_back(library_part(graph, first, segment.last));
        first = one.parts.back().segment.last + 1;
      }
      cases.push_back(std::move(one));
    }
    return cases;
  }

  struct Times {
    double fused_us = 0, parts_us = 0;
  };

  Times time(const Case& one) {
    const Graph& graph = *one.graph;
    std::set<ValueId> touched;
    std::int64_t bytes = 0;
    std::set<ValueId> read;
    for (const ValueId id : one.fused.segment.inputs) read.insert(graph.storage(id));
    const auto touch = [&](const Segment& segment) {
      for (const auto* list : {&segment.inputs, &segment.outputs})
        for (const ValueId id : *list)
          if (touched.insert(graph.storage(id)).second)
            bytes += bytes_of(graph.value(graph.storage(id)));
    };
    touch(one.fused.segment);
    // Values between the parts are rewritten each time, and count among neither side's memory.
    const std::int64_t sets =
        std::clamp<std::int64_t>(5 * device_->cache_bytes() / 2 / bytes + 1, 2, 64);
    for (const Piece& part : one.parts) touch(part.segment);
    std::vector<std::shared_ptr<void>> memory;
    std::vector<std::vector<void*>> addresses(static_cast<std::size_t>(sets),
                                              std::vector<void*>(graph.values().size(), nullptr));
    for (auto& set : addresses)
      for (const ValueId id : touched) {
        memory.push_back(device_->allocate(static_cast<std::size_t>(bytes_of(graph.value(id)))));
        set[static_cast<std::size_t>(id)] = memory.back().get();
        if (read.contains(id)) fill(graph.value(id), memory.back().get());
      }
    // First the fused segment, then the parts with each of the library's algorithms.
    std::size_t algorithms = 1;
    for (const Piece& part : one.parts)
      algorithms = std::max(algorithms, std::min(kAlgorithms, part.choices.size()));
    std::vector<std::unique_ptr<tune::Prepared>> launches;
    std::vector<std::unique_ptr<InTurn>> turns;
    std::vector<tune::Device::Contender> contenders(1 + algorithms);
    const tune::BatchShape batch;
    for (const auto& set : addresses) {
      launches.push_back(
          device_->prepare(graph, one.fused.segment, one.fused.choices[0], set, batch));
      contenders[0].push_back(launches.back().get());
      for (std::size_t i = 0; i < algorithms; ++i) {
        turns.push_back(std::make_unique<InTurn>());
        for (const Piece& part : one.parts) {
          const Choice& choice = part.choices[std::min(i, part.choices.size() - 1)];
          launches.push_back(device_->prepare(graph, part.segment, choice, set, batch));
          turns.back()->parts.push_back(launches.back().get());
        }
        contenders[1 + i].push_back(turns.back().get());
      }
    }
    const std::vector<double> us = device_->time(contenders, 1.5);
    return {us[0], *std::min_element(us.begin() + 1, us.end())};
  }

 private:
  /// Launches one behind the other.
  struct InTurn : tune::Prepared {
    std::vector<tune::Prepared*> parts;
    void launch() override {
      for (tune::Prepared* part : parts) part->launch();
    }
  };

  static std::int64_t bytes_of(const graph::Value& value) {
    return num_elements(value.shape) * static_cast<std::int64_t>(dtype_bytes(value.dtype));
  }

  /// From operator `first` on: as much as the library does at once, else one operator.
  Piece library_part(const Graph& graph, int first, int last) {
    for (int end = last; end >= first; --end) {
      if (!fusion::legality(graph, first, end).empty()) continue;
      Piece piece{fusion::make_segment(graph, first, end), {}};
      for (Choice& choice : device_->candidates(graph, piece.segment)) {
        const bool library = device_->is_library(choice.family);
        // Of row kernels, the first alone.
        if (library || (first == end && choice.family == "row" && piece.choices.empty()))
          piece.choices.push_back(std::move(choice));
      }
      if (!piece.choices.empty()) return piece;
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("operator \"{}\": expected a library's product "
                            "or a row kernel for it, got none",
                            graph.op(first).name));
  }

  template <class Number>
  void repeat(void* to, std::int64_t bytes, const std::vector<Number>& pool) {
    const std::size_t most = pool.size() * sizeof(Number);
    for (std::size_t at = 0; at < static_cast<std::size_t>(bytes); at += most)
      device_->upload(static_cast<std::byte*>(to) + at, pool.data(),
                      std::min(most, static_cast<std::size_t>(bytes) - at));
  }

  void fill(const graph::Value& value, void* to) {
    if (value.dtype == DType::kFloat32) return repeat(to, bytes_of(value), vector_);
    if (value.dtype == DType::kInt32) return repeat(to, bytes_of(value), positions_);
    repeat(to, bytes_of(value), elements_);
  }

  std::unique_ptr<tune::Device> device_;
  std::vector<BFloat16> elements_;
  std::vector<float> vector_;
  std::vector<std::int32_t> positions_;
};

/// What the cases run is compiled by all cores, a graph's kernels in one go.
void compile(const std::vector<Case>& cases, const cuda::Device& device) {
  std::map<const Graph*, std::vector<cuda::SegmentChoice>> choices;
  for (const Case& one : cases) {
    choices[one.graph].push_back({&one.fused.segment, &one.fused.choices[0]});
    for (const Piece& part : one.parts)
      choices[one.graph].push_back({&part.segment, &part.choices[0]});
  }
  std::vector<std::future<void>> running;
  for (const auto& [graph, list] : choices)
    running.push_back(std::async(std::launch::async, [&] { compile_ahead(*graph, list, device); }));
  for (std::future<void>& one : running) one.get();
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string seconds = "85";
  const bench::Arguments arguments(argc, argv, {{"--seconds", &seconds}});
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  arguments.expect_names(names);
  const auto deadline = Clock::now() + std::chrono::seconds(std::stoi(seconds));
  const cuda::Device device = cuda::Device::open();
  std::printf("%s\n", device.facts().name.c_str());
  Bench bench(tune::make_cuda_device());
  std::list<Graph> graphs;
  std::vector<Case> cases;
  for (const std::int64_t rows : kRows)
    for (const Model& model : kModels) {
      if (!arguments.wants(model.name)) continue;
      graphs.push_back(LayerBuilder(model, rows).build());
      for (Case& one : bench.cases_of(model, rows, graphs.back())) cases.push_back(std::move(one));
    }
  compile(cases, device);
  std::map<Fingerprint, Bench::Times> known;
  int faster = 0, slower = 0, timed = 0, faster_of_known = 0;
  for (const Case& one : cases) {
    const Fingerprint hash = segment_hash(*one.graph, one.fused.segment);
    if (!known.contains(hash)) {
      if (Clock::now() > deadline) {
        std::printf("out of time before %s, %ld rows\n", one.model->name,
                    static_cast<long>(one.rows));
        break;
      }
      known[hash] = bench.time(one);
      faster_of_known += known[hash].parts_us > known[hash].fused_us;
    }
    const Bench::Times& times = known.at(hash);
    const double ratio = times.parts_us / times.fused_us;
    ++timed;
    faster += ratio > 1;
    slower += ratio < 1 - kNoise;
    const std::string segment = text_of(*one.graph, one.fused),
                      choice = one.fused.choices[0].text();
    std::string parts;
    for (const Piece& part : one.parts)
      parts += fmt::format("{}{}", parts.empty() ? "" : " | ", text_of(*one.graph, part));
    fmt::print("{:<10} {:>5} {:<40} {:9.2f} us, library {:9.2f} us in {}: {:.2f}x{}  {}\n",
               one.model->name, one.rows, segment, times.fused_us, times.parts_us, one.parts.size(),
               ratio, ratio < 1 - kNoise ? " SLOWER" : "", choice);
    if (arguments.json() == nullptr) continue;
    fmt::print(arguments.json(),
               "{{\"model\":\"{}\",\"rows\":{},\"dtype\":\"bfloat16\",\"segment\":\"{}\","
               "\"choice\":\"{}\",\"us\":{:.3f},\"parts\":\"{}\",\"library_us\":{:.3f}}}\n",
               one.model->name, one.rows, segment, choice, times.fused_us, parts, times.parts_us);
  }
  fmt::print(
      "{} of {} fused segments take less time than their library parts ({:.0f} %), of the {} "
      "different ones {}; over {:.0f} % more take {}\n",
      faster, timed, 100.0 * faster / std::max(timed, 1), known.size(), faster_of_known,
      100 * kNoise, slower);
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
