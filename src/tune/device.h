#pragma once
// What tuning needs of a processor that runs segments: memory, kernels and a stopwatch.

#include <memory>
#include <string>
#include <vector>

#include "fusion/choice.h"
#include "fusion/cost.h"
#include "fusion/scheme.h"
#include "fusion/segment.h"
#include "graph/graph.h"
#include "stof/mask.h"
#include "tune/environment.h"

namespace stof::tune {

/// Sequences one behind the other and the mask of attention within each.
struct BatchShape {
  std::vector<std::int64_t> offsets;  ///< sequence i is rows offsets[i] .. offsets[i + 1]
  mask::Mask mask;

  std::int64_t rows() const { return offsets.empty() ? 0 : offsets.back(); }
};

/// A segment with kernel and addresses, or several in a row.
class Prepared {
 public:
  virtual ~Prepared() = default;
  /// May return before the work is done.
  virtual void launch() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Environment environment() const = 0;
  /// What can run the segment, the one to use untuned first.
  virtual std::vector<fusion::Choice> candidates(const graph::Graph& graph,
                                                 const fusion::Segment& segment) = 0;
  /// What sessions cut the graph's layers into untuned.
  virtual fusion::Scheme untuned_scheme(const graph::Graph& graph) = 0;
  /// These will be prepared soon: what takes long may begin. Graph outlives the device.
  virtual void expect(const graph::Graph& graph, const fusion::Segment& segment,
                      const std::vector<fusion::Choice>& choices) {
    static_cast<void>(graph), static_cast<void>(segment), static_cast<void>(choices);
  }
  /// Whether the family is a vendor's library or our one way to do it: part of "all library".
  virtual bool is_library(const std::string& family) const = 0;

  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  /// Addresses by ValueId. Graph, batch and addresses outlive the result. Throws with the reason
  /// where the choice can't run.
  virtual std::unique_ptr<Prepared> prepare(const graph::Graph& graph,
                                            const fusion::Segment& segment,
                                            const fusion::Choice& choice,
                                            const std::vector<void*>& addresses,
                                            const BatchShape& batch) = 0;
  virtual void synchronize() = 0;

  /// Microseconds of one launch of each contender: the median of rounds in which all are timed in
  /// turn; of as many rounds as `seconds` allow, one at least. A contender is a list of equal
  /// launches on different memory, which take turns so that caches are as cold as in a forward
  /// pass.
  using Contender = std::vector<Prepared*>;
  virtual std::vector<double> time(const std::vector<Contender>& contenders, double seconds) = 0;
  virtual fusion::MachineFacts facts() const = 0;
  /// Caches that a segment's memory should exceed, in bytes.
  virtual std::int64_t cache_bytes() const = 0;
};

}  // namespace stof::tune
