#include "tune/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tune/small_problem.h"

namespace stof::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(Tuner, SixteenProcessesShareOneColdDatabase) {
  constexpr int kProcesses = 16, kMeasured = 6;
  std::vector<pid_t> tuners;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid > 0) {
      tuners.push_back(pid);
      continue;
    }
    int code = 1;
    try {
      Worker worker(cpu_child(), {});
      TuneOptions options;
      options.stop = [asked = 0]() mutable { return ++asked > kMeasured; };
      const TuneResult result = tune(small_problem(), worker, Database(folder_), options);
      code = result.search.failed == 0 && result.search.measured + result.search.remembered > 0 ? 0
                                                                                                : 2;
    } catch (...) {
      code = 3;
    }
    ::_exit(code);
  }
  for (const pid_t pid : tuners) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  // Whole records of the same few segments, each with what the processes measured of it.
  const Database database(folder_);
  int measured = 0;
  for (const DatabaseEntry& entry : database.list()) {
    ASSERT_TRUE(entry.record.has_value()) << entry.problem;
    measured += static_cast<int>(entry.record->measured.size());
    for (const auto& [choice, of_choice] : entry.record->measured)
      EXPECT_GT(of_choice.microseconds, 0) << choice.text();
  }
  EXPECT_EQ(measured, kMeasured);
  Worker worker(cpu_child(), {});
  TuneOptions options;
  options.stop = [asked = 0]() mutable { return ++asked > kMeasured; };
  const TuneResult result = tune(small_problem(), worker, database, options);
  EXPECT_EQ(result.search.remembered, kMeasured);
  EXPECT_EQ(result.search.measured, 0);
}

}  // namespace
}  // namespace stof::tune
