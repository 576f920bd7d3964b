#pragma once
// A stream and a captured graph, released with their owners.

#include <utility>

#include "backend/cuda/driver.h"

namespace stof::cuda {

/// Does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  CUstream handle() const { return handle_; }
  /// Throws Cuda naming `what` when something on the stream has failed.
  void wait(const char* what) const;

 private:
  CUstream handle_ = nullptr;
};

/// What was enqueued on a stream, to be launched as one.
class StreamGraph {
 public:
  StreamGraph() = default;
  ~StreamGraph();
  StreamGraph(StreamGraph&& other) noexcept
      : executable_(std::exchange(other.executable_, nullptr)) {}
  StreamGraph& operator=(StreamGraph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }

  /// Captures what `enqueue` puts on the stream, instead of running it. Other threads may go on
  /// allocating and launching.
  template <class Enqueue>
  static StreamGraph capture(CUstream stream, const Enqueue& enqueue) {
    begin(stream);
    try {
      enqueue();
    } catch (...) {
      abandon(stream);
      throw;
    }
    return end(stream);
  }

  void launch(CUstream stream) const;

 private:
  static void begin(CUstream stream);
  static void abandon(CUstream stream) noexcept;
  static StreamGraph end(CUstream stream);

  CUgraphExec executable_ = nullptr;
};

}  // namespace stof::cuda
