#include "backend/cuda/measure.h"

#include <algorithm>
#include <vector>

namespace stof::cuda {
namespace {

/// A stream with what is needed to time a graph on it, released in any case.
struct Bench {
  const Driver& driver = Driver::instance();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUevent begin = nullptr, end = nullptr;

  Bench() {
    constexpr unsigned kNonBlocking = 1;
    driver.check(driver.cuStreamCreate(&stream, kNonBlocking), "creating a stream");
    driver.check(driver.cuEventCreate(&begin, 0), "creating an event");
    driver.check(driver.cuEventCreate(&end, 0), "creating an event");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    if (begin != nullptr) driver.cuEventDestroy(begin);
    if (end != nullptr) driver.cuEventDestroy(end);
    if (executable != nullptr) driver.cuGraphExecDestroy(executable);
    if (graph != nullptr) driver.cuGraphDestroy(graph);
    if (stream != nullptr) driver.cuStreamDestroy(stream);
  }

  void wait() const { driver.check(driver.cuStreamSynchronize(stream), "waiting for the GPU"); }
  void replay() const { driver.check(driver.cuGraphLaunch(executable, stream), "replaying"); }
};

}  // namespace

double measure_us(const std::function<void(CUstream)>& call, int calls, int repeats) {
  Bench bench;
  const Driver& driver = bench.driver;
  call(bench.stream);
  bench.wait();
  driver.check(driver.cuStreamBeginCapture(bench.stream, 0), "capturing");
  for (int i = 0; i < calls; ++i) call(bench.stream);
  driver.check(driver.cuStreamEndCapture(bench.stream, &bench.graph), "ending the capture");
  driver.check(driver.cuGraphInstantiate(&bench.executable, bench.graph, 0),
               "instantiating the graph");
  bench.replay();
  std::vector<float> times;
  for (int i = 0; i < repeats; ++i) {
    driver.check(driver.cuEventRecord(bench.begin, bench.stream), "recording");
    bench.replay();
    driver.check(driver.cuEventRecord(bench.end, bench.stream), "recording");
    driver.check(driver.cuEventSynchronize(bench.end), "waiting for the GPU");
    float ms = 0;
    driver.check(driver.cuEventElapsedTime(&ms, bench.begin, bench.end), "reading a time");
    times.push_back(ms * 1000 / static_cast<float>(calls));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace stof::cuda
