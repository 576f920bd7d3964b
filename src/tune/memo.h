#pragma once
// Every latency measured so far, shared by all schemes, layers and stages: nothing is timed twice.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tune/landscape.h"

namespace stof::tune {

/// Two times nearer than this are the same time: the noise of a good measurement.
inline constexpr double kHysteresis = 0.02;

/// What is known of one segment.
class SegmentMemo {
 public:
  explicit SegmentMemo(std::vector<Candidate> candidates);

  const std::vector<Candidate>& candidates() const { return candidates_; }
  const std::optional<Measurement>& measured(std::size_t index) const { return measured_[index]; }
  void add(std::size_t index, Measurement measurement);

  /// Index of the choice to use, nothing before a candidate succeeded: of all within the hysteresis
  /// of the fastest the one that comes first in the model's order, whatever was measured when.
  std::optional<std::size_t> best() const;
  /// Microseconds of best().
  std::optional<double> best_us() const;
  int num_measured() const { return num_measured_; }

 private:
  std::vector<Candidate> candidates_;
  std::vector<std::optional<Measurement>> measured_;
  int num_measured_ = 0;
};

/// The candidate to time next, nothing when all are known or hopeless: predicted `prune_ratio`
/// times slower than the best. Half of the samples in the model's order, half at random: the model
/// is not always right.
std::optional<std::size_t> next_candidate(const SegmentMemo& segment, const std::string& key,
                                          double prune_ratio, std::uint64_t seed);

/// By segment key. Candidates are asked for once a key.
class Memo {
 public:
  explicit Memo(Landscape& landscape) : landscape_(landscape) {}

  SegmentMemo& of(Range range);
  /// Sum of the best latencies over a forward pass, nothing where a segment has none yet.
  std::optional<double> cost(const Partition& partition);
  /// The partition with the best choice of each segment; each must have one.
  TunedPlan plan(const Partition& partition);

  const std::map<std::string, SegmentMemo>& segments() const { return segments_; }
  /// Measured over predicted latency: the median of all segments, 1 before the first.
  double model_scale() const;

 private:
  Landscape& landscape_;
  std::map<std::string, SegmentMemo> segments_;
  std::map<Range, SegmentMemo*> by_range_;
};

/// Ranges with what each is taken to cost over a forward pass; a range that is not there cannot
/// run.
using RangeCosts = std::map<Range, double>;

/// Of every range that has a latency.
RangeCosts measured_costs(Landscape& landscape, Memo& memo);

/// Of all covers of `num_operators` operators by such ranges the one with the smallest sum (fewest
/// segments on a tie): a shortest path over the operators. Nothing where the ranges cover no pass.
/// `through`, when given, is part of the cover.
std::optional<Partition> cheapest_cover(int num_operators, const RangeCosts& costs,
                                        const Range* through = nullptr);

}  // namespace stof::tune
