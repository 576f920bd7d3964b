#pragma once
// A graph cut into segments with their kernels chosen and its values laid out in memory: everything
// about a forward pass except addresses.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/switches.h"
#include "fusion/choice.h"
#include "fusion/scheme.h"
#include "fusion/segment.h"
#include "graph/graph.h"

namespace stof::exec {

/// What a value takes, contiguous.
inline std::size_t value_bytes(const graph::Value& value) {
  return static_cast<std::size_t>(num_elements(value.shape)) * dtype_bytes(value.dtype);
}

/// A segment, what it is run with, and its content's fingerprint.
struct PlannedSegment {
  fusion::Segment segment;
  fusion::Choice choice;
  Fingerprint hash;
};

/// Where a value that segments pass on lies in the arena.
struct ArenaSlot {
  graph::ValueId value = graph::kNoId;
  std::int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  ///< segments from the one that writes it to the last that reads it
};

/// What can run a segment, the one to use untuned first: a backend's candidates().
using CandidatesOf =
    std::function<std::vector<fusion::Choice>(const graph::Graph&, const fusion::Segment&)>;

/// Whether a family may be used.
using Allows = std::function<bool(const std::string& family)>;

/// What a backend's families offer that `allows` holds for. Throws NotFound where the library of
/// one is not installed.
using CandidatesOfFamilies = std::function<std::vector<fusion::Choice>(
    const graph::Graph&, const fusion::Segment&, const Allows&)>;

/// The same where the library of `library_family` may be missing: what the others offer then, with
/// one line of warning a process, and none of a segment that they can't run, which is then cut.
/// Throws the NotFound where that is a single operator.
std::vector<fusion::Choice> installed_candidates(const CandidatesOfFamilies& candidates_of,
                                                 const std::string& library_family,
                                                 const graph::Graph& graph,
                                                 const fusion::Segment& segment,
                                                 const Allows& allows);

/// Choices by segment_hash(), as tuning found them.
using Choices = std::map<Fingerprint, fusion::Choice>;

struct PlanOptions {
  std::int64_t guard_bytes = 0;  ///< left unused behind every value, for tests
};

/// An immutable value.
class ExecutionPlan {
 public:
  ExecutionPlan(std::shared_ptr<const graph::Graph> graph, fusion::Scheme scheme,
                std::vector<PlannedSegment> segments, const PlanOptions& options = {});

  const graph::Graph& graph() const { return *graph_; }
  const fusion::Scheme& scheme() const { return scheme_; }
  const std::vector<PlannedSegment>& segments() const { return segments_; }
  /// Values that segments write, in the order in which they are written.
  const std::vector<ArenaSlot>& slots() const { return slots_; }
  std::int64_t arena_bytes() const { return arena_bytes_; }
  /// Attention leaves rows of padding as they are, and they must hold numbers: its results lie in
  /// the arena's first bytes, which nothing else uses, so that they are cleared once a run.
  std::int64_t attention_bytes() const { return attention_bytes_; }

  /// Throws Internal naming values that live at once and overlap, or one that is read before it is
  /// written.
  void validate() const;
  /// "14 operators a layer in 6 segments (14:34e8), 74 launches, arena 12.5 MiB"
  std::string describe() const;
  /// Scheme, segments (operators, family, steps, choice, hash) and slots.
  std::string to_json() const;

 private:
  std::shared_ptr<const graph::Graph> graph_;
  fusion::Scheme scheme_;
  std::vector<PlannedSegment> segments_;
  std::vector<ArenaSlot> slots_;
  std::int64_t arena_bytes_ = 0, attention_bytes_ = 0;
};

/// Segments of the scheme with the choice that is known for each, or the first candidate that the
/// switches allow. Throws InvalidArgument where the scheme is not legal, Unsupported naming a
/// segment that has no candidate.
std::vector<PlannedSegment> choose_segments(const graph::Graph& graph, const fusion::Scheme& scheme,
                                            const CandidatesOf& candidates_of,
                                            const Choices& known = {},
                                            const FuseSwitches& switches = {});

/// The scheme with every segment that has no candidate cut behind the longest part that has one.
/// With STOF_FUSE=off every operator by itself.
fusion::Scheme runnable_scheme(const graph::Graph& graph, const fusion::Scheme& scheme,
                               const CandidatesOf& candidates_of,
                               const FuseSwitches& switches = {});

/// Rows that a plan for `rows` computes where few shapes are to be planned: rounded up to 1, 2, 4
/// or 8, and beyond to one of eight sizes an octave, so that at most an eighth of the work is
/// padding.
std::int64_t bucket_rows(std::int64_t rows);

}  // namespace stof::exec
