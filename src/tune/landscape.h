#pragma once
// What the search sees of a model and a machine: operators, legal segments, candidates and a
// stopwatch. Real ones measure on a device; synthetic ones let the search be tested with a clock
// that the test turns.

#include <compare>
#include <string>
#include <vector>

#include "fusion/choice.h"

namespace stof::tune {

/// Operators first..last of a landscape, both inclusive: one fused segment.
struct Range {
  int first = 0;
  int last = 0;

  int size() const { return last - first + 1; }
  auto operator<=>(const Range&) const = default;
};

/// Segments in order that cover every operator once. A scheme as the search handles it.
using Partition = std::vector<Range>;

/// "0-2 3 4-5"
std::string to_text(const Partition& partition);

/// One way to run a segment.
struct Candidate {
  fusion::Choice choice;
  double predicted_us = 0;  ///< by the analytic cost model
  bool is_library = false;  ///< runs a vendor's library and plain row kernels only
};

/// What became of measuring something. A candidate that failed is data, not an error.
struct Measurement {
  double microseconds = 0;  ///< of one run; meaningless after a failure
  std::string failure;      ///< why it can't be used: "wrong at row 3", "did not end within 2 s"
  bool wrong = false;       ///< fails by its numbers, so always: not for want of memory or time
  bool late = false;        ///< was given up, as its time was over: nothing is known of it
  bool remembered = false;  ///< from a record, in no time

  bool ok() const { return failure.empty(); }
  static Measurement time_was_up() { return {0, "time was up", false, true}; }
};

/// A scheme and what each of its segments is run with.
struct TunedPlan {
  Partition partition;
  std::vector<fusion::Choice> choices;  ///< one a segment

  std::string text() const;
};

class Landscape {
 public:
  virtual ~Landscape() = default;

  /// Operators in topological order. At least one.
  virtual int num_operators() const = 0;
  /// True for what does matrix products: a segment holds at most two of those.
  virtual bool compute_intensive(int op) const = 0;
  /// True where one kernel may compute the whole range. A single operator is always legal.
  virtual bool legal(Range range) const = 0;
  /// Equal for ranges that compute the same on the same shapes: they share every latency.
  virtual std::string segment_key(Range range) const = 0;
  /// How often the range occurs in a forward pass: once a layer.
  virtual int occurrences(Range range) const = 0;
  /// Candidates of a legal range, the one predicted fastest first; none where no template fits.
  virtual std::vector<Candidate> candidates(Range range) = 0;
  /// Times one candidate, validated first. `incumbent`, when given, is timed in turn with it so
  /// that a drifting clock hits both; `incumbent_us` is what it is known to take. Given up, as
  /// late, when it has taken `seconds`.
  virtual Measurement measure(Range range, const fusion::Choice& choice,
                              const fusion::Choice* incumbent, double incumbent_us,
                              double seconds) = 0;
  /// Times whole forward passes in turn, one result a plan; the last ones are late where `seconds`
  /// do not do for all.
  virtual std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                                      double seconds) = 0;
  /// A clock that never goes back, in seconds.
  virtual double seconds() const = 0;
};

}  // namespace stof::tune
