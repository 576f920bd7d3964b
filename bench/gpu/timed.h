#pragma once
// Launches of one kernel, timed as a graph.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/driver.h"

namespace stof::bench {

/// Launches captured once, to be replayed after a rest.
class Timed {
 public:
  Timed(std::string impl, std::string config,
        const std::function<void(cuda::CUstream, int)>& launch, double expected_us,
        cuda::CUstream stream)
      : impl_(std::move(impl)), config_(std::move(config)) {
    const auto& driver = cuda::Driver::instance();
    launch(stream, 0);
    driver.check(driver.cuStreamSynchronize(stream), "running " + config_);
    launches_ = std::clamp(static_cast<int>(1500 / expected_us), 2, 110);
    cuda::CUgraph graph = nullptr;
    driver.check(driver.cuStreamBeginCapture(stream, 0), "capturing");
    for (int i = 0; i < launches_; ++i) launch(stream, i);
    driver.check(driver.cuStreamEndCapture(stream, &graph), "ending the capture");
    driver.check(driver.cuGraphInstantiate(&executable_, graph, 0), "instantiating");
    driver.cuGraphDestroy(graph);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() {
    if (executable_ != nullptr) cuda::Driver::instance().cuGraphExecDestroy(executable_);
  }
  void replay(cuda::CUstream stream) const {
    const auto& driver = cuda::Driver::instance();
    driver.check(driver.cuGraphLaunch(executable_, stream), "replaying " + config_);
  }
  const std::string& impl() const { return impl_; }
  const std::string& config() const { return config_; }
  int launches() const { return launches_; }
  std::vector<double> times;  ///< microseconds a launch
  double best() const { return *std::min_element(times.begin(), times.end()); }
  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  std::string impl_, config_;
  cuda::CUgraphExec executable_ = nullptr;
  int launches_ = 0;
};

}  // namespace stof::bench
