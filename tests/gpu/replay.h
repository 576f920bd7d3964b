#pragma once
// Work captured in a CUDA graph, to be replayed on operands that have changed.

#include "backend/cuda/device.h"

namespace stof::check {

/// A stream of its own, and what was captured on it.
class Replay {
 public:
  template <class Work>
  explicit Replay(const Work& work) {
    driver_.check(driver_.cuStreamCreate(&stream_, 1), "creating a stream");
    driver_.check(driver_.cuStreamBeginCapture(stream_, 0), "capturing");
    work(stream_);
    driver_.check(driver_.cuStreamEndCapture(stream_, &graph_), "ending the capture");
    driver_.check(driver_.cuGraphInstantiate(&executable_, graph_, 0), "instantiating");
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    if (executable_ != nullptr) driver_.cuGraphExecDestroy(executable_);
    if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
  }
  /// After the default stream's work, and waits.
  void run() const {
    driver_.check(driver_.cuStreamSynchronize(nullptr), "waiting");
    driver_.check(driver_.cuGraphLaunch(executable_, stream_), "replaying");
    driver_.check(driver_.cuStreamSynchronize(stream_), "replaying");
  }

 private:
  const cuda::Driver& driver_ = cuda::Driver::instance();
  cuda::CUstream stream_ = nullptr;
  cuda::CUgraph graph_ = nullptr;
  cuda::CUgraphExec executable_ = nullptr;
};

}  // namespace stof::check
