#pragma once
// The two-stage search of STOF (arXiv 2506.06095): fusion expansion changes the scheme while a few
// sampled parameters speak for it, then parameter sampling spends what is left where it pays most.
// Deterministic for a landscape whose measurements are; can be stopped at any time.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tune/landscape.h"
#include "tune/memo.h"
#include "tune/moves.h"

namespace stof::tune {

/// How the search stands, for a progress line.
struct Progress {
  const char* stage = "";  ///< "baselines", "fusion", "parameters", "end to end"
  double seconds = 0;      ///< since the search began
  double budget_seconds = 0;
  double best_us = 0;     ///< one forward pass as the sum of its segments; 0: not known yet
  double untuned_us = 0;  ///< the same of the rules' scheme with the model's choices
  int measured = 0;       ///< candidates that were timed
  int failed = 0;         ///< candidates that were found faulty or could not run
};

struct SearchOptions {
  double budget_seconds = 30;
  double spent_seconds = 0;  ///< of the budget, before the search
  /// Schemes to start from: what the rules say, and what runs on library parts alone.
  Partition rules;
  Partition all_library;
  /// Candidates a trial times for each segment it makes.
  int samples_per_trial = 3;
  /// Candidates a segment gets in the first round of stage 2; later rounds have as many in all.
  int samples_per_round = 4;
  /// Candidates and moves predicted this many times slower than the best are not timed.
  double prune_ratio = 3;
  /// Parts of the budget after which stage 1 and stage 2 end; the rest is for the last comparison,
  /// and more than the rest where passes are long.
  double expansion_share = 0.5;
  double search_share = 0.85;
  std::uint64_t seed = 1;
  std::function<bool()> stop;  ///< asked before every measurement; true: end with the best so far
  std::function<void(const Progress&)> progress;
  /// Told of every candidate that was measured now, before the next begins: what is to be kept.
  std::function<void(Range, const SegmentMemo&)> measured;
};

/// A move that was tried.
struct Trial {
  Move move;
  double before_us = 0;  ///< both of one layer's segments
  double after_us = 0;   ///< 0: none of the samples ran
  bool kept = false;
  std::string note;  ///< why it was not timed: "no template", "predicted 4.1 times slower"
};

/// A whole scheme in the last comparison.
struct ComparedPlan {
  std::string name;  ///< "rules only", "all library", "tuned", ...
  TunedPlan plan;
  double sum_us = 0;  ///< of its segments' latencies; 0: not measured
  Measurement end_to_end;
  bool timed = false;  ///< end_to_end holds something
};

enum class SearchEnd { kExhausted, kBudget, kStopped };
const char* to_string(SearchEnd end);

struct SearchResult {
  std::vector<ComparedPlan> compared;  ///< "rules only" first
  std::size_t chosen = 0;              ///< of compared
  /// Whether the chosen plan is known to run: with too small a budget nothing is.
  bool usable = false;
  std::vector<Trial> trials;
  /// Best sum so far, whenever it changed: the progress curve.
  struct Point {
    double seconds = 0;
    double best_us = 0;
  };
  std::vector<Point> curve;
  std::map<std::string, SegmentMemo> segments;  ///< everything measured, by segment key
  SearchEnd end = SearchEnd::kExhausted;
  double seconds = 0;            ///< of the budget, with those before the search
  int measured = 0, failed = 0;  ///< now
  int remembered = 0;            ///< known from records

  const ComparedPlan& best() const { return compared[chosen]; }
};

/// Searches. The result is never slower than the rules' scheme with the model's first choices: that
/// is in the last comparison, and a scheme that is not faster by more than the hysteresis does not
/// replace it. Throws Unsupported naming the segment where nothing can run an operator at all.
SearchResult search(Landscape& landscape, const SearchOptions& options);

}  // namespace stof::tune
