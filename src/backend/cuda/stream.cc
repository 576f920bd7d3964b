#include "backend/cuda/stream.h"

namespace stof::cuda {

Stream::Stream() {
  constexpr unsigned kNonBlocking = 1;
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamCreate(&handle_, kNonBlocking), "creating a stream");
}

Stream::~Stream() { Driver::instance().cuStreamDestroy(handle_); }

void Stream::wait(const char* what) const {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamSynchronize(handle_), what);
}

StreamGraph::~StreamGraph() {
  if (executable_ != nullptr) Driver::instance().cuGraphExecDestroy(executable_);
}

void StreamGraph::begin(CUstream stream) {
  constexpr int kThreadLocal = 1;
  const Driver& driver = Driver::instance();
  driver.check(driver.cuStreamBeginCapture(stream, kThreadLocal), "beginning a capture");
}

void StreamGraph::abandon(CUstream stream) noexcept {
  const Driver& driver = Driver::instance();
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream, &graph) == 0 && graph != nullptr)
    driver.cuGraphDestroy(graph);
}

StreamGraph StreamGraph::end(CUstream stream) {
  const Driver& driver = Driver::instance();
  CUgraph graph = nullptr;
  driver.check(driver.cuStreamEndCapture(stream, &graph), "ending a capture");
  StreamGraph made;
  const CUresult result = driver.cuGraphInstantiate(&made.executable_, graph, 0);
  driver.cuGraphDestroy(graph);
  driver.check(result, "instantiating a captured graph");
  return made;
}

void StreamGraph::launch(CUstream stream) const {
  const Driver& driver = Driver::instance();
  driver.check(driver.cuGraphLaunch(executable_, stream), "launching a captured graph");
}

}  // namespace stof::cuda
