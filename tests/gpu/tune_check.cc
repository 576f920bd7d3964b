// Tunes BERT-base on the GPU (random weights, bfloat16, BigBird's mask) and checks the tuner: that
// planted faults are found out and cost one candidate each, that what was tuned is found again and
// is not slower than untuned.
//   tune_gpu_check [--shapes 8x512:30,1x128] [--budget SECONDS] [--archive FILE] [--no-faults]
// A shape may have a budget of its own behind a colon.
// --archive: writes the records found, for data/tuning.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/stream.h"
#include "core/file.h"
#include "exec/cuda_session.h"
#include "model/bert_graph.h"
#include "model/tuned.h"
#include "stof/error.h"
#include "stof/gpu_info.h"
#include "tune/cuda_device.h"
#include "tune/explain.h"
#include "tune/random_values.h"
#include "tune/stopwatch.h"
#include "tune/tuner.h"
#include "tune/worker.h"

namespace {

using namespace stof;
using namespace stof::tune;

struct Tally {
  int passed = 0, failed = 0;
  void check(bool good, const std::string& what) {
    (good ? passed : failed)++;
    fmt::print("{} {}\n", good ? "ok  " : "FAIL", what);
    std::fflush(stdout);
  }
};

model::BertConfig bert_base(int layers) {
  model::BertConfig config;
  config.hidden_size = 768;
  config.num_layers = layers;
  config.num_heads = 12;
  config.intermediate_size = 3072;
  config.vocab_size = 30522;
  config.max_positions = 4096;
  config.num_segments = 2;
  config.layer_norm_eps = 1e-12f;
  return config;
}

TuningProblem problem_of(std::int64_t batch, std::int64_t seq, int layers) {
  TuningProblem problem;
  problem.graph_of = [layers](std::int64_t rows) {
    return model::build_bert_graph(bert_base(layers), rows, DType::kBFloat16);
  };
  for (std::int64_t i = 0; i <= batch; ++i) problem.batch.offsets.push_back(i * seq);
  problem.batch.mask = mask::parse("bigbird()");
  return problem;
}

/// Right first, then what the fault does to the result, on many rows only: as a kernel with a fault
/// in its tiles.
class Fault : public Prepared {
 public:
  Fault(std::string kind, std::unique_ptr<Prepared> inner, cuda::CUdeviceptr output,
        std::size_t bytes, bool large, Device& gpu, const cuda::Device& device)
      : kind_(std::move(kind)),
        inner_(std::move(inner)),
        output_(output),
        bytes_(bytes),
        large_(large),
        gpu_(gpu),
        device_(device) {}

  void launch() override {
    inner_->launch();
    const cuda::Driver& driver = cuda::Driver::instance();
    gpu_.synchronize();
    const auto overwrite = [&](std::size_t from, std::size_t count, unsigned char byte) {
      driver.check(driver.cuMemsetD8Async(output_ + from, byte, count, nullptr), "a fault");
    };
    if (kind_ == "nan" && large_) overwrite(bytes_ - 2, 2, 0xFF);
    if (kind_ == "block" && large_) overwrite(bytes_ / 2, bytes_ / 16, 0);
    if (kind_ == "behind") overwrite(bytes_, 2, 0);
    if (kind_ == "endless") run("spin", "while (true) __nanosleep(1000);");
    if (kind_ == "stray") run("stray", "*reinterpret_cast<volatile int*>(16) = 1;");
    driver.check(driver.cuStreamSynchronize(nullptr), "running a fault");
  }

 private:
  void run(const char* name, const std::string& body) const {
    cuda::KernelSource source;
    source.name = std::string("planted_") + name;
    source.text = "extern \"C\" __global__ void planted() { " + body + " }\n";
    source.entry = "planted";
    loaded_kernel(source, device_).launch(1, 32, nullptr, nullptr);
  }

  std::string kind_;
  std::unique_ptr<Prepared> inner_;
  cuda::CUdeviceptr output_;
  std::size_t bytes_;
  bool large_;
  Device& gpu_;
  const cuda::Device& device_;
};

/// The GPU with a faulty candidate of each kind in front of the first segment's.
class FaultyDevice : public Device {
 public:
  FaultyDevice() : gpu_(make_cuda_device()), device_(cuda::Device::open()) {}

  Environment environment() const override { return gpu_->environment(); }
  std::vector<fusion::Choice> candidates(const graph::Graph& graph,
                                         const fusion::Segment& segment) override {
    std::vector<fusion::Choice> list = gpu_->candidates(graph, segment);
    if (segment.first != 0) return list;
    for (const char* fault : {"nan", "block", "behind", "endless", "stray"})
      list.insert(list.begin(), {fault, {}});
    return list;
  }
  fusion::Scheme untuned_scheme(const graph::Graph& graph) override {
    return gpu_->untuned_scheme(graph);
  }
  bool is_library(const std::string& family) const override { return gpu_->is_library(family); }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return gpu_->allocate(bytes); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    gpu_->upload(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    gpu_->download(to, from, bytes);
  }
  std::unique_ptr<Prepared> prepare(const graph::Graph& graph, const fusion::Segment& segment,
                                    const fusion::Choice& choice,
                                    const std::vector<void*>& addresses,
                                    const BatchShape& batch) override {
    const std::vector<fusion::Choice> good = gpu_->candidates(graph, segment);
    const bool planted = choice.parameters.empty() && segment.first == 0;
    auto inner = gpu_->prepare(graph, segment, planted ? good.front() : choice, addresses, batch);
    if (!planted) return inner;
    const graph::ValueId id = graph.storage(segment.outputs.front());
    const graph::Value& value = graph.value(id);
    const auto bytes =
        static_cast<std::size_t>(num_elements(value.shape)) * dtype_bytes(value.dtype);
    return std::make_unique<Fault>(
        choice.family, std::move(inner),
        reinterpret_cast<cuda::CUdeviceptr>(addresses[static_cast<std::size_t>(id)]), bytes,
        batch.rows() > 100, *gpu_, device_);
  }
  void synchronize() override { gpu_->synchronize(); }
  std::vector<double> time(const std::vector<Contender>& contenders, double seconds) override {
    return gpu_->time(contenders, seconds);
  }
  fusion::MachineFacts facts() const override { return gpu_->facts(); }
  std::int64_t cache_bytes() const override { return gpu_->cache_bytes(); }

 private:
  std::unique_ptr<Device> gpu_;
  cuda::Device device_;
};

void check_faults(Tally& tally) {
  WorkerOptions limits;
  limits.candidate_seconds = 10;
  Worker worker(fork_child([] {
                  return std::make_unique<DeviceBench>(std::make_unique<FaultyDevice>(),
                                                       problem_of(2, 256, 1));
                }),
                limits);
  const Range first{0, 0};
  int good = 0;
  for (const Candidate& candidate : worker.candidates(first)) {
    const Measurement measured = worker.measure(first, candidate.choice, nullptr, 0, 100);
    const bool planted = candidate.choice.parameters.empty();
    good += !planted && measured.ok();
    if (planted)
      tally.check(!measured.ok(), fmt::format("planted {}: {}", candidate.choice.family,
                                              measured.ok() ? "taken for good" : measured.failure));
    else if (!measured.ok())
      fmt::print("     {}: {}\n", candidate.choice.text(), measured.failure);
  }
  tally.check(good > 0, fmt::format("{} candidates are good after {} processes were lost", good,
                                    worker.num_lost()));
}

void print_search(const SearchResult& search) {
  fmt::print("     {} timed, {} faulty, {:.1f} s, {}\n", search.measured, search.failed,
             search.seconds, to_string(search.end));
  for (const ComparedPlan& entry : search.compared)
    fmt::print("     {:<13} sum {:8.1f} us, pass {:8.1f} us {} {}\n", entry.name, entry.sum_us,
               entry.end_to_end.microseconds, entry.end_to_end.failure,
               &entry == &search.best() ? "<- chosen" : "");
  for (const Trial& trial : search.trials)
    fmt::print("       {} {:.1f} -> {:.1f} us {}{}\n", trial.move.text(), trial.before_us,
               trial.after_us, trial.kept ? "kept" : "", trial.note);
  for (const auto& point : search.curve)
    fmt::print("       {:6.2f} s  {:.1f} us\n", point.seconds, point.best_us);
  std::map<std::string, int> faults;
  for (const auto& [key, segment] : search.segments)
    for (std::size_t i = 0; i < segment.candidates().size(); ++i)
      if (segment.measured(i) && !segment.measured(i)->ok())
        fmt::print("       faulty: {}: {}\n", segment.candidates()[i].choice.text(),
                   segment.measured(i)->failure);
}

void check_tuning(Tally& tally, std::int64_t batch, std::int64_t seq, double budget,
                  const Database& database) {
  const TuningProblem problem = problem_of(batch, seq, 12);
  WorkerOptions limits;
  limits.candidate_seconds = 30;
  const Stopwatch watch;
  Worker worker(
      fork_child([problem] { return std::make_unique<DeviceBench>(make_cuda_device(), problem); }),
      limits);
  TuneOptions options;
  options.budget_seconds = budget;
  options.spent_seconds = watch.seconds();
  const TuneResult result = stof::tune::tune(problem, worker, database, options);
  const SearchResult& search = result.search;
  const std::string name = fmt::format("({}, {})", batch, seq);
  const ComparedPlan& untuned = search.compared.front();
  tally.check(search.usable && search.best().timed && untuned.timed,
              fmt::format("{} tuned to {}: {:.1f} us, untuned {:.1f} us", name, result.scheme.hex(),
                          search.best().end_to_end.microseconds, untuned.end_to_end.microseconds));
  tally.check(search.best().end_to_end.microseconds <= untuned.end_to_end.microseconds,
              name + " is not slower than untuned");
  // A second for a measurement that was given up.
  tally.check(search.seconds < budget + 1,
              fmt::format("{} took {:.1f} s of {:.0f}", name, search.seconds, budget));
  const auto again = load_tuned(problem, database, worker.environment());
  tally.check(again && again->scheme == result.scheme && again->choices == result.choices,
              name + " is found again");
  print_search(search);
}

struct Shape {
  std::int64_t batch = 0, seq = 0;
  double budget = 0;  ///< seconds
};

std::vector<Shape> parse_shapes(const std::string& text, double budget) {
  std::vector<Shape> shapes;
  std::istringstream list(text);
  for (std::string shape; std::getline(list, shape, ',');) {
    const std::size_t cross = shape.find('x'), colon = shape.find(':');
    const bool own = colon != std::string::npos;
    shapes.push_back({std::stoll(shape.substr(0, cross)), std::stoll(shape.substr(cross + 1)),
                      own ? std::stod(shape.substr(colon + 1)) : budget});
  }
  return shapes;
}

/// A process that finds kernels and records in the caches: how long after the weights are there its
/// first result is.
void check_start(Tally& tally, const Shape& shape) {
  const TuningProblem problem = problem_of(shape.batch, shape.seq, 12);
  const graph::Graph graph = problem.graph_of(problem.batch.rows());
  std::vector<Tensor> tensors;
  exec::WeightViews views;
  for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kWeight)) {
    tensors.push_back(random_value(graph, id, problem.batch, 1));
    views[id] = tensors.back().view();
  }
  exec::Batch batch;
  batch.offsets = problem.batch.offsets;
  batch.mask = problem.batch.mask;
  for (const graph::ValueId id : graph.of_kind(graph::ValueKind::kInput)) {
    tensors.push_back(random_value(graph, id, problem.batch, 2));
    batch.inputs.emplace_back(graph.value(id).name, tensors.back().view());
  }
  const cuda::Device device = cuda::Device::open();
  const auto weights = std::make_shared<exec::CudaWeights>(device, graph, views);
  const Stopwatch watch;
  exec::SessionOptions options;
  options.tuned = model::tuned_segments(problem.graph_of, [] { return make_cuda_device(); });
  exec::CudaSession session(device, problem.graph_of, weights, options);
  double planned = 0;
  session.prepare(problem.batch.rows());
  planned = watch.seconds();
  session.run(batch, [&](const exec::CudaResult& result) {
    cuda::Driver::instance().check(cuda::Driver::instance().cuStreamSynchronize(result.stream),
                                   "the first result");
  });
  tally.check(watch.seconds() < 1.5,
              fmt::format("({}, {}): first result {:.3f} s after the weights, kernels after {:.3f}",
                          shape.batch, shape.seq, watch.seconds(), planned));
}

void run(int argc, char** argv, Tally& tally) {
  std::string shapes = "8x512", archive;
  double budget = 30;
  bool faults = true;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (option == "--shapes") shapes = value();
    if (option == "--budget") budget = std::stod(value());
    if (option == "--archive") archive = value();
    if (option == "--no-faults") faults = false;
  }
  // Children are forked, so this process uses the GPU only when all have ended.
  const std::string folder =
      std::filesystem::temp_directory_path() / ("stof_tune_check_" + std::to_string(::getpid()));
  ::setenv("STOF_CACHE", folder.c_str(), 1);  // kernels as well: from empty caches
  const Database database = Database::standard();
  if (faults) check_faults(tally);
  for (const auto& [batch, seq, seconds] : parse_shapes(shapes, budget))
    check_tuning(tally, batch, seq, seconds, database);
  if (!archive.empty()) write_file(archive, make_archive(database.records()));
  for (const Shape& shape : parse_shapes(shapes, budget)) check_start(tally, shape);
  const auto device = make_cuda_device();
  for (const auto& [batch, seq, seconds] : parse_shapes(shapes, budget)) {
    const TuningProblem problem = problem_of(batch, seq, 12);
    const auto tuned = load_tuned(problem, database, device->environment());
    fmt::print("\n{}", explain(problem, *device, database, tuned).to_text());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  Tally tally;
  try {
    run(argc, argv, tally);
  } catch (const std::exception& error) {
    tally.check(false, error.what());
  }
  const GpuInfo info = gpu_info();
  fmt::print("{} passed, {} failed on {}\n", tally.passed, tally.failed,
             info.devices.empty() ? info.problem : info.devices.front().name);
  return tally.failed == 0 ? 0 : 1;
}
