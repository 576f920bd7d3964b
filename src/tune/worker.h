#pragma once
// A bench in a child process: a candidate that crashes, hangs or scribbles over memory costs one
// candidate, never the tuner.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tune/bench.h"

namespace stof::tune {

/// A child and the socket to it.
struct ChildProcess {
  pid_t pid = -1;
  int descriptor = -1;
};

/// Starts a child whenever one is needed.
using StartChild = std::function<ChildProcess()>;

/// A copy of this process that serves `make_bench()`. For processes that have used neither OpenMP
/// nor a GPU yet: a copy of one that has can use neither.
StartChild fork_child(std::function<std::unique_ptr<Bench>()> make_bench);
/// A program that calls serve() on its standard input.
StartChild execute_child(std::vector<std::string> arguments);

/// Answers requests until the other end is closed.
void serve(Bench& bench, int descriptor);
/// The same with a bench made first; an Error in that is the answer to the first request.
void serve(const std::function<std::unique_ptr<Bench>()>& make_bench, int descriptor);

struct WorkerOptions {
  double candidate_seconds = 10;    ///< a candidate that takes longer counts as endless
  double end_to_end_seconds = 120;  ///< the same of one last comparison
  double start_seconds = 120;       ///< until the child's first answer
  double grace_seconds = 1;         ///< beyond the time a request has: to give it up by itself
};

/// Forwards to the child; one that ended is replaced for the next request. Every child is waited
/// for: none outlives this.
class Worker : public Bench {
 public:
  /// Throws what the child says when it can't start.
  Worker(StartChild start, WorkerOptions options);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Environment environment() override { return environment_; }
  fusion::Scheme untuned_scheme() override;
  std::vector<Candidate> candidates(Range range) override;
  Measurement measure(Range range, const fusion::Choice& choice, const fusion::Choice* incumbent,
                      double incumbent_us, double seconds) override;
  std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                              double seconds) override;
  /// Children that had to be replaced.
  int num_lost() const { return num_lost_; }

 private:
  struct Answer;
  std::string start(double seconds);
  int stop();
  int ended();
  Answer ask(const std::string& request, double seconds);

  StartChild start_;
  WorkerOptions options_;
  ChildProcess child_;
  Environment environment_;
  int num_lost_ = 0;
};

}  // namespace stof::tune
