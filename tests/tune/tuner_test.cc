#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "model/tuned.h"
#include "stof/error.h"
#include "tune/cpu_device.h"
#include "tune/explain.h"
#include "tune/worker.h"

namespace stof::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Children are forked: this process must not use OpenMP, which a copy of it then could not use.

/// Two layers of a small encoder, with the operators of BERT.
graph::Graph small_graph(std::int64_t rows) {
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

TuningProblem small_problem() { return {small_graph, {{0, 96, 200}, mask::parse("window(8,8)")}}; }

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

StartChild cpu_child() {
  return fork_child(
      [] { return std::make_unique<DeviceBench>(make_cpu_device(1), small_problem()); });
}

TEST_F(Tuner, TunesAndFindsItAgain) {
  const Database database(folder_);
  Worker worker(cpu_child(), {});
  TuneOptions options;
  options.budget_seconds = 20;
  const TuneResult first = tune(small_problem(), worker, database, options);
  EXPECT_EQ(first.search.end, SearchEnd::kExhausted);
  EXPECT_EQ(first.search.failed, 0);
  EXPECT_EQ(worker.num_lost(), 0);
  EXPECT_TRUE(first.search.best().timed);
  EXPECT_EQ(first.scheme.size(), 14);

  const auto again = load_tuned(small_problem(), database, worker.environment());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->scheme, first.scheme);
  EXPECT_EQ(again->choices, first.choices);
  // Fewer rows and other masks take the same choices.
  TuningProblem other = small_problem();
  other.batch.offsets = {0, 64};
  ASSERT_TRUE(load_tuned(other, database, worker.environment()).has_value());
  EXPECT_EQ(load_tuned(other, database, worker.environment())->rows, 200);
  other.batch.mask = mask::parse("causal");
  EXPECT_TRUE(load_tuned(other, database, worker.environment()).has_value());

  // Nothing is measured twice, also not by another process.
  const auto records = database.records();
  const TuneResult second = tune(small_problem(), worker, database, options);
  EXPECT_LT(second.search.seconds, first.search.seconds);
  for (const auto& [key, segment] : first.search.segments) {
    const auto found = second.search.segments.find(key);
    ASSERT_NE(found, second.search.segments.end());
    EXPECT_EQ(found->second.best_us(), segment.best_us());
  }
  EXPECT_THAT(database.records(), SizeIs(records.size()));
}

TEST_F(Tuner, SurvivesFaultyCandidatesAndChoosesNone) {
  const Database database(folder_);
  WorkerOptions limits;
  limits.candidate_seconds = 1;
  Worker worker(fork_child([] {
                  return std::make_unique<DeviceBench>(std::make_unique<FaultyDevice>(),
                                                       small_problem());
                }),
                limits);
  // Every fault is found out for what it is.
  const Range norm{0, 0};
  std::map<std::string, std::string> said;
  const std::vector<Candidate> candidates = worker.candidates(norm);
  for (const Candidate& candidate : candidates)
    said[candidate.choice.family] = worker.measure(norm, candidate.choice, nullptr, 0, 100).failure;
  EXPECT_THAT(said["row"], IsEmpty());
  EXPECT_THAT(said["nan"], HasSubstr("nan at [199, 31], or not written (200 rows)"));
  EXPECT_THAT(said["block"], HasSubstr("(200 rows)"));
  EXPECT_THAT(said["unwritten"], HasSubstr("or not written (1 rows)"));
  EXPECT_THAT(said["behind"], HasSubstr("bytes behind it were written"));
  EXPECT_THAT(said["inputs"], HasSubstr("an input was changed"));
  EXPECT_EQ(said["endless"], "did not end within 1 s");
  EXPECT_EQ(said["crash"], "crashed (signal 11)");
  EXPECT_EQ(said["exit"], "ended the process (exit code 3)");
  EXPECT_EQ(said["throw"], "planted: no such kernel");
  EXPECT_EQ(worker.num_lost(), 3);

  TuneOptions options;
  options.budget_seconds = 10;
  const TuneResult result = tune(small_problem(), worker, database, options);
  EXPECT_GT(result.search.failed, 10);
  const auto good = [](const fusion::Choice& choice) {
    return choice.family == "row" || choice.family == "onednn" || choice.family == "attention";
  };
  for (const ComparedPlan& entry : result.search.compared)
    for (const fusion::Choice& choice : entry.plan.choices)
      EXPECT_TRUE(good(choice)) << choice.text();
  EXPECT_THAT(database.records(), ::testing::Not(IsEmpty()));
  int num_wrong = 0;
  for (const Record& record : database.records()) {
    EXPECT_TRUE(record.kind == RecordKind::kScheme || good(record.choice)) << record.choice.text();
    for (const auto& [range, choice] : record.choices) EXPECT_TRUE(good(choice)) << choice.text();
    for (const auto& [choice, measured] : record.measured) {
      EXPECT_EQ(measured.failure.empty(), good(choice))
          << choice.text() << ": " << measured.failure;
      for (const char* passing : {"throw", "endless", "crash", "exit"})
        EXPECT_NE(choice.family, passing);
      num_wrong += !measured.failure.empty();
    }
  }
  EXPECT_GT(num_wrong, 0);
}

TEST_F(Tuner, DropsChoicesWhoseNumbersAreWrongWhenLoaded) {
  const Database database(folder_);
  TunedScheme tuned;
  {
    Worker worker(cpu_child(), {});
    TuneOptions options;
    options.budget_seconds = 1;
    tune(small_problem(), worker, database, options);
    tuned = *load_tuned(small_problem(), database, worker.environment());
  }
  const std::size_t count = tuned.choices.size();
  FaultyDevice device;
  revalidate(small_problem(), device, tuned);
  EXPECT_EQ(tuned.choices.size(), count);
  // As if the embedding's kernel had gone wrong since.
  for (auto& [hash, choice] : tuned.choices)
    if (choice.family == "row") choice.family = "unwritten";
  ::testing::internal::CaptureStderr();
  revalidate(small_problem(), device, tuned);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("unwritten chunk="));
  EXPECT_LT(tuned.choices.size(), count);
  for (const auto& [hash, choice] : tuned.choices) EXPECT_NE(choice.family, "unwritten");
  EXPECT_EQ(tuned.choices.size() + tuned.rejected.size(), count);
  for (const auto& [hash, choice] : tuned.rejected) EXPECT_EQ(choice.family, "unwritten");
  // What explain draws is what runs then, and it says so.
  const Explanation shown = explain(small_problem(), device, database, tuned);
  ASSERT_THAT(shown.notes, SizeIs(tuned.rejected.size()));
  EXPECT_THAT(shown.to_text(), HasSubstr("unwritten chunk="));
  EXPECT_THAT(shown.to_text(), HasSubstr(" is not used for "));
  for (const ExplainedSegment& segment : shown.segments)
    EXPECT_NE(segment.choice.family, "unwritten");

  // As if parameters were missing.
  const auto with_products_by = [&](const char* family) {
    TunedScheme changed = tuned;
    for (auto& [hash, choice] : changed.choices)
      if (choice.family == "onednn") choice.family = family;
    return changed;
  };
  TunedScheme lacking = with_products_by("lacking");
  ::testing::internal::CaptureStderr();
  revalidate(small_problem(), device, lacking);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("planted: no chunk"));
  EXPECT_LT(lacking.choices.size(), tuned.choices.size());
  TunedScheme unlucky = with_products_by("no memory");
  EXPECT_THROW(revalidate(small_problem(), device, unlucky), Error);
}

TEST_F(Tuner, SessionsReadAndRunARecordOnce) {
  const char* const before = ::getenv("STOF_CACHE");
  const std::string cache = before == nullptr ? "" : before;
  ::setenv("STOF_CACHE", folder_.c_str(), 1);
  {
    Worker worker(cpu_child(), {});
    TuneOptions options;
    options.budget_seconds = 1;
    tune(small_problem(), worker, Database(folder_ + "/tuning"), options);
  }
  int opened = 0;
  const auto open = [&opened] {
    ++opened;
    return make_cpu_device(1);
  };
  const exec::TunedOf tuned = model::tuned_segments(small_graph, open);
  const auto first = tuned(small_graph(200));
  EXPECT_TRUE(first.has_value() && !first->choices.empty());
  EXPECT_EQ(opened, 1);
  std::filesystem::remove_all(folder_);
  const auto fewer = tuned(small_graph(64));
  EXPECT_TRUE(fewer.has_value() && fewer->choices.size() == first->choices.size());
  EXPECT_EQ(opened, 1);
  EXPECT_FALSE(model::tuned_segments(small_graph, open)(small_graph(200)).has_value());
  EXPECT_EQ(opened, 1);
  before == nullptr ? ::unsetenv("STOF_CACHE") : ::setenv("STOF_CACHE", cache.c_str(), 1);
}

TEST_F(Tuner, MeasuresOnWhenMemoryRanOutForOneSegment) {
  auto owned = std::make_unique<FaultyDevice>();
  FaultyDevice& device = *owned;
  DeviceBench bench(std::move(owned), small_problem());
  const auto measure = [&](Range range) {
    return bench.measure(range, bench.candidates(range).back().choice, nullptr, 0, 100).failure;
  };
  const Range embedding{0, 0}, next{1, 1};
  EXPECT_EQ(measure(embedding), "");
  device.bytes_lacking = 200 * 32 * 4;  // of a value of 32 columns; the validator asks for more
  EXPECT_EQ(measure(next), "planted: no memory");
  device.bytes_lacking = 0;
  EXPECT_EQ(measure(embedding), "");
}

TEST_F(Tuner, KeepsFinishedRecordsWhenInterrupted) {
  const Database database(folder_);
  Worker worker(cpu_child(), {});
  int asked = 0;
  TuneOptions options;
  options.stop = [&] { return ++asked > 12; };
  const TuneResult result = tune(small_problem(), worker, database, options);
  EXPECT_EQ(result.search.end, SearchEnd::kStopped);
  EXPECT_GE(database.records().size(), 5u);
  EXPECT_TRUE(load_tuned(small_problem(), database, worker.environment()).has_value());
}

/// Children of this process that have not been waited for.
int num_children() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    for (std::ifstream list(entry.path() / "children"); list >> std::ws, list.good();) {
      int pid = 0;
      list >> pid;
      ++count;
    }
  return count;
}

int num_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

TEST_F(Tuner, LosesOneMeasurementAtMostWhenItIsKilled) {
  // Shared with the process that tunes: how many measurements it has ended.
  void* const shared =
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const num_ended = static_cast<std::atomic<int>*>(shared);
  const pid_t tuner = ::fork();
  ASSERT_GE(tuner, 0);
  if (tuner == 0) {
    Worker worker(cpu_child(), {});
    TuneOptions options;
    options.budget_seconds = 600;
    options.progress = [&](const Progress& progress) {
      *num_ended = progress.measured;
      // Long enough for the other process to see it.
      if (progress.measured >= 8) std::this_thread::sleep_for(std::chrono::seconds(60));
    };
    tune(small_problem(), worker, Database(folder_), options);
    ::_exit(0);
  }
  while (*num_ended < 8) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ::kill(tuner, SIGKILL);
  ASSERT_EQ(::waitpid(tuner, nullptr, 0), tuner);
  const Database database(folder_);
  std::size_t num_stored = 0;
  for (const DatabaseEntry& entry : database.list()) {
    ASSERT_TRUE(entry.record.has_value()) << entry.problem;
    num_stored += entry.record->measured.size();
  }
  EXPECT_EQ(num_stored, 8u);
  ::munmap(shared, sizeof(int));
  // The next one goes on from there.
  Worker worker(cpu_child(), {});
  TuneOptions options;
  options.stop = [count = 0]() mutable { return ++count > 20; };
  EXPECT_EQ(tune(small_problem(), worker, database, options).search.remembered, 8);
}

TEST_F(Tuner, WaitsForEveryChildAndClosesItsSockets) {
  const int children = num_children(), descriptors = num_descriptors();
  const auto broken = []() -> std::unique_ptr<Bench> {
    throw Error(ErrorCode::kNotFound, "planted");
  };
  EXPECT_THROW(Worker(fork_child(broken), {}), Error);
  EXPECT_THROW(Worker(execute_child({"/nowhere/stof"}), {}), Error);
  const auto child_that = [](const std::function<void(int)>& body) -> StartChild {
    return [body] {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(ends[0]);
        body(ends[1]);
        ::pause();  // stays
      }
      ::close(ends[1]);
      return ChildProcess{pid, ends[0]};
    };
  };
  const StartChild silent = child_that([](int socket) { ::close(socket); });
  const StartChild talker = child_that([](int socket) {
    EXPECT_EQ(::write(socket, "\x02\0\0\0no", 6), 6);  // length and text
  });
  EXPECT_THROW(Worker(talker, {}), Error);
  EXPECT_THROW(Worker(silent, {}), Error);
  {
    WorkerOptions limits;
    limits.candidate_seconds = 0.2;
    Worker worker(fork_child([] {
                    return std::make_unique<DeviceBench>(std::make_unique<FaultyDevice>(),
                                                         small_problem());
                  }),
                  limits);
    for (const Candidate& candidate : worker.candidates({0, 0}))
      worker.measure({0, 0}, candidate.choice, nullptr, 0, 100);
    EXPECT_EQ(num_children(), children + 1);
  }
  EXPECT_EQ(num_children(), children);
  EXPECT_EQ(num_descriptors(), descriptors);
}

TEST_F(Tuner, SaysWhyTheMeasuringProcessDoesNotStart) {
  const auto broken = []() -> std::unique_ptr<Bench> {
    throw Error(ErrorCode::kNotFound, "GPU 0: there is none");
  };
  try {
    Worker worker(fork_child(broken), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("GPU 0: there is none"));
  }
  const auto starved = []() -> std::unique_ptr<Bench> { throw std::bad_alloc(); };
  try {
    Worker worker(fork_child(starved), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("bad_alloc"));
  }
  EXPECT_THROW(Worker(execute_child({"/nowhere/stof"}), {}), Error);
}

}  // namespace
}  // namespace stof::tune
