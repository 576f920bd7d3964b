// Times whole forward passes of models' stacks of layers (random weights, bfloat16) under a sparse
// mask: milliseconds of a CUDA graph's replay, from the first layer's input to the last hidden
// states; of an encoder with a decoder, of two graphs' in turn.
//   bench_gpu_stacks_e2e [--model NAME] [--mask NAME] [--shapes BxS,...] [--layers N] [--json FILE]
//     [--replays N] [VARIANT...]
//   bench_gpu_stacks_e2e [--model NAME] [--mask NAME] [--layers N] --serve on [--device cpu]
//     a command a line, an answer in JSON a line:
//     time B S N [VARIANT]    N replays, timed one by one:
//                             {"B": .., "S": .., "variant": .., "ms": [..]}
//     describe B S [VARIANT]  the plan; of several parts a list of plans
//     mask S FILE             the mask's bits, row by row, least significant bit first
//     weights FILE            safetensors, bfloat16 and float32, under the graph's names
//     input B S FILE          what the first layer reads, float32 [B * S, hidden]; behind that of
//                             an encoder that of its decoder, whose texts are as long
//     output B S FILE         the last hidden states for that, likewise, of the last part
//     tune B S SECONDS        searches from nothing for variant tuned
//     memory                  bytes of device memory that all so far took
//     on the CPU, in float32, mask, weights, input and output only
// so that a script can time short bursts of this and of other programs in turn, and check results.
// Models and masks are named in bench/gpu/stacks.cc; without a mask a model has its own.
// Variants, the rows of an ablation: library (an operator a kernel, cuBLASLt, attention over all
// keys), attention (the same with the mask's tiles only), fusion (fused segments, attention over
// all keys, or all that are not later), both; and tuned: both, with what the last tune of that
// shape found.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/core.h>

#include "bench/gpu/arguments.h"
#include "bench/gpu/stacks.h"
#include "bench/gpu/stacks_run.h"
#include "core/file.h"
#include "core/text.h"
#include "exec/cuda_session.h"
#include "graph/graph.h"
#include "stof/error.h"
#include "tune/cuda_device.h"
#include "tune/tuner.h"

namespace {

using namespace stof;

using bench::Shape;
using bench::StackModel;
using bench::Stacks;
using bench::Texts;

constexpr const char* kVariants[] = {"library", "attention", "fusion", "both"};
constexpr const char* kTuned = "tuned";
constexpr std::int64_t kMaxSeq = 131072;
constexpr std::int64_t kMaxSavedMask = 16384;  // 32 MiB of bits

/// "1x128,8x512"
std::vector<Shape> parse_shapes(const std::string& text) {
  std::vector<Shape> shapes;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    std::istringstream words(item);
    Shape shape{};
    char by = 0;
    if (!(words >> shape.batch >> by >> shape.seq) || by != 'x' || shape.batch < 1 ||
        shape.seq < 1 || shape.seq > kMaxSeq || !words.eof())
      throw std::runtime_error("--shapes " + text + ": expected BxS,... with S up to " +
                               std::to_string(kMaxSeq) + ", as 8x512");
    shapes.push_back(shape);
  }
  return shapes;
}

/// One behind the other.
void save_floats(const std::vector<Tensor>& tensors, const std::string& path) {
  AtomicFile file(path);
  for (const Tensor& elements : tensors) {
    const Tensor wide = Tensor::converted(elements.view(), DType::kFloat32);
    file.write(wide.data(), wide.bytes());
  }
  file.commit();
}

struct Timing {
  std::vector<float> ms;
  bool good = true;
  Tensor states;
};

class Bench {
 public:
  explicit Bench(const Stacks& stacks)
      : device_(cuda::Device::open()),
        stacks_(stacks),
        free_(device_.free_memory_bytes()),
        states_(std::make_shared<exec::CudaStates>()) {
    for (int part = 0; part < model().num_parts(); ++part)
      weights_.push_back(std::make_shared<const exec::CudaWeights>(device_, stacks.graph(part),
                                                                   stacks.weights(part)));
    note_memory();
  }

  const std::string& gpu() const { return device_.facts().name; }
  const Stacks& stacks() const { return stacks_; }
  const StackModel& model() const { return stacks_.model(); }
  std::int64_t memory() const { return taken_; }

  Timing time(const Shape& shape, int replays, const std::string& variant) {
    free_ = device_.free_memory_bytes();
    const bool sparse = variant == "attention" || variant == "both" || variant == kTuned;
    const Texts texts(model(), shape, sparse ? stacks_.mask() : dense());
    Timing timing;
    replay(variant, texts, [&](const auto& launch, cuda::CUstream first, const auto& result) {
      const cuda::Driver& driver = cuda::Driver::instance();
      const Event begin, end;
      for (int i = 0; i < replays; ++i) {
        driver.check(driver.cuEventRecord(begin.event, first), "recording");
        launch();
        driver.check(driver.cuEventRecord(end.event, result.stream), "recording");
        driver.check(driver.cuEventSynchronize(end.event), "waiting");
        driver.check(driver.cuEventElapsedTime(&timing.ms.emplace_back(), begin.event, end.event),
                     "timing");
      }
      timing.states = Tensor(result.dtype, {result.rows, result.columns});
      driver.check(driver.cuMemcpyDtoHAsync(timing.states.data(), result.address,
                                            timing.states.bytes(), result.stream),
                   "downloading");
      driver.check(driver.cuStreamSynchronize(result.stream), "downloading");
      for (const BFloat16 value : std::as_const(timing.states).as<BFloat16>())
        timing.good &= std::isfinite(static_cast<float>(value));
    });
    note_memory();
    return timing;
  }

  /// What the search found in `seconds`, which begins with an empty database.
  tune::TuneResult tune(const Shape& shape, double seconds) {
    if (model().num_parts() > 1)
      throw std::runtime_error("tune: expected a model of one part, got " + model().name);
    tune::TuningProblem problem;
    problem.graph_of = stacks_.graph_of(0);
    for (std::int64_t b = 0; b <= shape.batch; ++b) problem.batch.offsets.push_back(b * shape.seq);
    problem.batch.mask = stacks_.mask();
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
    Sessions& sessions = sessions_[kTuned];
    sessions.clear();
    sessions.emplace_back(device_, stacks_.graph_of(0), weights_[0], session);
    return result;
  }

  /// By part.
  std::vector<exec::ExecutionPlan> plans(const Shape& shape, const std::string& variant) {
    std::vector<exec::ExecutionPlan> plans;
    for (exec::CudaSession& session : sessions(variant))
      plans.push_back(session.plan(shape.batch * shape.seq));
    return plans;
  }

 private:
  using Sessions = std::list<exec::CudaSession>;  ///< by part

  struct Event {
    cuda::CUevent event = nullptr;

    Event() {
      const cuda::Driver& driver = cuda::Driver::instance();
      driver.check(driver.cuEventCreate(&event, 0), "creating an event");
    }
    ~Event() { cuda::Driver::instance().cuEventDestroy(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
  };

  /// Calls replayed(launch, the stream that a pass begins on, its result).
  template <class Replayed>
  void replay(const std::string& variant, const Texts& texts, const Replayed& replayed) {
    Sessions& parts = sessions(variant);
    parts.front().replay(texts.batches[0], [&](const auto& launch, const exec::CudaResult& made) {
      if (parts.size() == 1) return replayed(launch, made.stream, made);
      parts.back().replay(texts.batches[1], [&](const auto& decode, const auto& result) {
        const cuda::Driver& driver = cuda::Driver::instance();
        const Event encoded;
        const auto both = [&] {
          launch();
          driver.check(driver.cuEventRecord(encoded.event, made.stream), "recording");
          driver.check(driver.cuStreamWaitEvent(result.stream, encoded.event, 0), "waiting");
          decode();
        };
        replayed(both, made.stream, result);
      });
    });
  }

  /// What an attention that knows no sparsity computes.
  mask::Mask dense() const {
    return stacks_.mask_name().starts_with("causal") ? mask::causal() : mask::all();
  }

  void note_memory() {
    const std::int64_t now = device_.free_memory_bytes();
    taken_ += std::max<std::int64_t>(free_ - now, 0);
    free_ = now;
  }

  Sessions& sessions(const std::string& variant) {
    if (variant == kTuned && sessions_.count(kTuned) == 0)
      throw std::runtime_error("variant tuned: expected a tune command before");
    const bool known = variant == kTuned || std::find(std::begin(kVariants), std::end(kVariants),
                                                      variant) != std::end(kVariants);
    if (!known)
      throw std::runtime_error("variant " + variant +
                               ": expected library, attention, fusion, both or tuned");
    Sessions& sessions = sessions_[variant];
    if (sessions.empty()) {
      exec::SessionOptions options;
      options.batches_repeat = true;
      if (variant == "library" || variant == "attention") {
        options.switches.fuse = false;
        options.switches.disabled.insert("gemm_sm90");
      }
      for (int part = 0; part < model().num_parts(); ++part)
        sessions.emplace_back(device_, stacks_.graph_of(part),
                              weights_[static_cast<std::size_t>(part)], options, states_);
    }
    return sessions;
  }

  cuda::Device device_;
  const Stacks& stacks_;
  std::int64_t free_ = 0, taken_ = 0;                              ///< bytes of device memory
  std::vector<std::shared_ptr<const exec::CudaWeights>> weights_;  ///< by part
  std::shared_ptr<exec::CudaStates> states_;                       ///< of all parts
  std::map<std::string, Sessions> sessions_;
};

float median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_all(Bench& bench, const std::vector<Shape>& shapes,
             const std::vector<std::string>& variants, int replays, std::FILE* json) {
  const char* model = bench.model().name.c_str();
  const char* mask = bench.stacks().mask_name().c_str();
  for (const Shape& shape : shapes)
    for (const std::string& variant : variants) {
      const auto start = std::chrono::steady_clock::now();
      bench.time(shape, 3, variant);
      const double prepared =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const Timing timing = bench.time(shape, replays, variant);
      const double tokens = static_cast<double>(shape.batch * shape.seq);
      std::printf(
          "%s (%2ld, %4ld) %s %-9s %9.4f ms, best %9.4f, %.1f ns a token; prepared in "
          "%5.2f s; %.0f MiB%s\n",
          model, shape.batch, shape.seq, mask, variant.c_str(), median(timing.ms),
          *std::min_element(timing.ms.begin(), timing.ms.end()), median(timing.ms) * 1e6 / tokens,
          prepared, static_cast<double>(bench.memory()) / (1 << 20),
          timing.good ? "" : " BAD: not finite");
      for (const exec::ExecutionPlan& plan : bench.plans(shape, variant))
        std::printf("    %s\n", plan.describe().c_str());
      if (json != nullptr)
        std::fprintf(json,
                     "{\"gpu\":\"%s\",\"model\":\"%s\",\"layers\":%d,\"B\":%ld,\"S\":%ld,\"mask\":"
                     "\"%s\",\"impl\":\"stof\",\"variant\":\"%s\",\"ms\":%.4f,\"tune_s\":0,"
                     "\"memory_mib\":%.0f,\"protocol\":\"median of %d replays\",\"good\":%s}\n",
                     bench.gpu().c_str(), model, bench.model().layers, shape.batch, shape.seq, mask,
                     variant.c_str(), median(timing.ms),
                     static_cast<double>(bench.memory()) / (1 << 20), replays,
                     timing.good ? "true" : "false");
      std::fflush(stdout);
    }
}

/// Row by row, least significant bit first, as bench_gpu_attention --masks writes them.
void save_mask(const mask::Mask& mask, std::int64_t seq, const std::string& path) {
  const mask::Mask bound = mask.bind({1, 1, seq, seq});
  std::vector<std::uint64_t> words;
  for (std::int64_t q = 0; q < seq; ++q)
    for (std::int64_t k = 0; k < seq; k += 64) words.push_back(bound.row_bits(0, 0, q, k));
  AtomicFile file(path);
  file.write(words.data(), words.size() * sizeof words[0]);
  file.commit();
}

std::string plans_text(const std::vector<exec::ExecutionPlan>& plans) {
  if (plans.size() == 1) return plans[0].to_json();
  std::string text;
  for (const exec::ExecutionPlan& plan : plans)
    text += (text.empty() ? "[" : ", ") + plan.to_json();
  return text + "]";
}

/// A command's answer; `bench` is null on the CPU.
std::string answer(const Stacks& stacks, Bench* bench, const std::string& line) {
  std::istringstream words(line);
  std::string verb, file, variant = "both";
  Shape shape{1, 0};
  int count = 0;
  words >> verb;
  if (verb == "memory" && bench != nullptr)
    return fmt::format("{{\"memory\": {}}}", bench->memory());
  if (verb == "mask" || verb == "weights") {
    if (verb == "mask") words >> shape.seq;
    if (!(words >> file) ||
        (verb == "mask" && (shape.seq < 64 || shape.seq % 64 != 0 || shape.seq > kMaxSavedMask)))
      throw std::runtime_error(
          "expected \"mask S FILE\", S in multiples of 64 up to 16384, or \"weights FILE\"");
    verb == "mask" ? save_mask(stacks.mask(), shape.seq, file) : stacks.save_weights(file);
    return "{\"" + verb + "\": " + quote_text(file, 4096) + "}";
  }
  words >> shape.batch >> shape.seq;
  if (verb == "time") words >> count;
  if (verb == "input" || verb == "output") words >> file;
  if (words.fail() || shape.batch < 1 || shape.seq < 1 || shape.seq > kMaxSeq)
    throw std::runtime_error("expected a command, B and S up to " + std::to_string(kMaxSeq));
  if (verb == "input") {
    save_floats(Texts(stacks.model(), shape, stacks.mask()).x, file);
    return "{\"input\": " + quote_text(file, 4096) + "}";
  }
  if (verb == "output" && bench == nullptr) {
    save_floats({stacks.cpu_states(shape)}, file);
    return "{\"output\": " + quote_text(file, 4096) + "}";
  }
  if (bench == nullptr)
    throw std::runtime_error("expected mask, weights, input or output on the CPU");
  if (verb == "tune") {
    double seconds = 0;
    if (!(words >> seconds) || !(seconds > 0))
      throw std::runtime_error("expected tune B S SECONDS");
    const tune::TuneResult result = bench->tune(shape, seconds);
    const tune::SearchResult& search = result.search;
    return fmt::format(
        "{{\"tune_s\": {:.1f}, \"scheme\": \"{}\", \"untuned_us\": {:.1f}, \"tuned_us\": {:.1f}, "
        "\"measured\": {}, \"faulty\": {}}}",
        search.seconds, result.scheme.hex(), search.compared.front().end_to_end.microseconds,
        search.best().end_to_end.microseconds, search.measured, search.failed);
  }
  words >> variant;
  if (verb == "describe") return plans_text(bench->plans(shape, variant));
  if (verb == "output") {
    save_floats({bench->time(shape, 1, variant).states}, file);
    return "{\"output\": " + quote_text(file, 4096) + "}";
  }
  if (verb != "time" || count < 1)
    throw std::runtime_error("expected time, tune, describe, mask, weights, input or output");
  const Timing timing = bench->time(shape, count, variant);
  if (!timing.good) throw std::runtime_error("the result is not finite");
  std::string text = fmt::format("{{\"B\": {}, \"S\": {}, \"variant\": \"{}\", \"ms\": [",
                                 shape.batch, shape.seq, variant);
  for (std::size_t i = 0; i < timing.ms.size(); ++i)
    text += fmt::format("{}{:.5f}", i == 0 ? "" : ", ", timing.ms[i]);
  return text + "]}";
}

/// What went wrong with one line is its answer; the next one may go well.
void serve(const Stacks& stacks, Bench* bench) {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::printf("%s\n", answer(stacks, bench, line).c_str());
    } catch (const std::exception& error) {
      std::printf("{\"error\": %s}\n", quote_text(error.what(), 4096).c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::string serve_text, device, replays = "15", model = "bert-base", mask, layers,
                                  shapes = "1x128,8x512,16x2048,1x4096";
  const bench::Arguments arguments(argc, argv,
                                   {{"--serve", &serve_text},
                                    {"--device", &device},
                                    {"--replays", &replays},
                                    {"--model", &model},
                                    {"--mask", &mask},
                                    {"--layers", &layers},
                                    {"--shapes", &shapes}});
  arguments.expect_names({std::begin(kVariants), std::end(kVariants)});
  StackModel sizes = bench::stack_model(model);
  if (!layers.empty()) sizes.layers = std::stoi(layers);
  if (!device.empty() && (device != "cpu" || serve_text.empty()))
    throw std::runtime_error("--device " + device + ": expected cpu, with --serve on");
  const Stacks stacks(sizes, mask, device.empty() ? DType::kBFloat16 : DType::kFloat32);
  if (!device.empty()) {
    serve(stacks, nullptr);
    return 0;
  }
  Bench bench(stacks);
  if (serve_text.empty()) {
    std::vector<std::string> wanted;
    for (const char* variant : kVariants)
      if (arguments.wants(variant)) wanted.emplace_back(variant);
    std::printf("%s\n", bench.gpu().c_str());
    run_all(bench, parse_shapes(shapes), wanted, std::stoi(replays), arguments.json());
  } else {
    serve(stacks, &bench);
  }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}
