#pragma once
// The bench of a model on a device: validates, then times segments and whole passes on random
// values.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tune/bench.h"
#include "tune/validate.h"

namespace stof::tune {

/// What is tuned: a model at a number of rows.
struct TuningProblem {
  GraphOfRows graph_of;
  BatchShape batch;
};

class DeviceBench : public Bench {
 public:
  DeviceBench(std::unique_ptr<Device> device, TuningProblem problem);
  ~DeviceBench() override;

  Environment environment() override { return device_->environment(); }
  fusion::Scheme untuned_scheme() override { return device_->untuned_scheme(*graph_); }
  /// False after an error of the GPU's driver, which stays in its context.
  bool usable() const override { return usable_; }
  std::vector<Candidate> candidates(Range range) override;
  Measurement measure(Range range, const fusion::Choice& choice, const fusion::Choice* incumbent,
                      double incumbent_us, double seconds) override;
  std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                              double seconds) override;

 private:
  struct Memory;
  class Pass;
  /// One launch each on as many sets of addresses as make memory cold.
  std::vector<std::unique_ptr<Prepared>> prepare(const fusion::Segment& segment,
                                                 const fusion::Choice& choice);
  const std::vector<std::vector<void*>>& address_sets(const fusion::Segment& segment);
  void* fill(graph::ValueId id);
  void expect(Range range);

  // Before the device: what it does in the background reads the graph.
  TuningProblem problem_;
  std::shared_ptr<const graph::Graph> graph_;
  Strip strip_;
  std::map<Range, std::vector<Candidate>> candidates_;  ///< that were not measured yet
  std::unique_ptr<Device> device_;
  Validator validator_;
  std::unique_ptr<Memory> memory_;
  bool usable_ = true;
};

}  // namespace stof::tune
