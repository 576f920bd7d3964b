#pragma once
// Measures candidates: in this process, or in a child that a faulty one may take down.

#include <string>
#include <vector>

#include "fusion/scheme.h"
#include "tune/environment.h"
#include "tune/landscape.h"

namespace stof::tune {

class Bench {
 public:
  virtual ~Bench() = default;
  virtual Environment environment() = 0;
  /// What runs untuned.
  virtual fusion::Scheme untuned_scheme() = 0;
  /// False after a fault that leaves this process unable to measure: it is to be replaced.
  virtual bool usable() const { return true; }
  virtual std::vector<Candidate> candidates(Range range) = 0;
  /// As Landscape::measure().
  virtual Measurement measure(Range range, const fusion::Choice& choice,
                              const fusion::Choice* incumbent, double incumbent_us,
                              double seconds) = 0;
  virtual std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                                      double seconds) = 0;
};

}  // namespace stof::tune
