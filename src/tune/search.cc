#include "tune/search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/check.h"
#include "core/hash.h"

namespace stof::tune {
namespace {

constexpr const char* kAllLibrary = "all library";
/// Of a pass in the last comparison: to warm up, and the rounds.
constexpr double kPassLaunches = 5;
/// Passes that it compares at most.
constexpr double kMostPasses = 5;

class Search {
 public:
  Search(Landscape& landscape, const SearchOptions& options)
      : landscape_(landscape),
        options_(options),
        memo_(landscape),
        begin_(landscape.seconds() - options.spent_seconds),
        rules_(options.rules),
        library_(options.all_library) {}

  SearchResult run();

 private:
  // What one scheme of the start is run with before anything is tuned.
  ComparedPlan baseline(const char* name, Partition& partition, bool library_only);
  std::size_t first_that_runs(Range range, bool library_only, bool* found);

  void expand(Partition& partition, int samples);
  std::vector<Move> moves_by_promise(const Partition& partition);
  Trial try_move(const Move& move, int samples);
  void refine(const Partition& partition);
  int sample(Range range, int count);
  bool measure(Range range, std::size_t index);
  void improve(Partition& partition);
  void take_cheapest_cover(Partition& partition);
  RangeCosts expected_costs();
  void follow_model(int samples);
  void widen(int samples);
  int most_candidates() const;
  void compare(const Partition& partition);
  void time_passes();

  double spent() const { return landscape_.seconds() - begin_; }
  double deadline(double share) const;
  bool out_of_time(double share);
  int num_known() const { return result_.measured + result_.failed + result_.remembered; }
  void report();
  double predicted(Range range);

  Landscape& landscape_;
  const SearchOptions& options_;
  Memo memo_;
  double begin_;
  double deadline_share_ = 1;
  double measuring_seconds_ = 0, last_seconds_ = 0;
  double comparing_seconds_ = 0;  ///< that the last comparison is expected to take
  bool late_ = false;             ///< a measurement was given up, as its time was over
  const char* stage_ = "baselines";
  Partition current_;
  double untuned_us_ = 0;
  Partition rules_, library_;
  std::map<std::string, Trial> trials_;  ///< by the move's text: the last of each
  SearchResult result_;
};

bool Search::out_of_time(double share) {
  if (result_.end == SearchEnd::kStopped) return true;
  if (options_.stop && options_.stop()) {
    result_.end = SearchEnd::kStopped;
    return true;
  }
  // One measurement more must fit: it takes what one took so far, or the last one, whichever is
  // less. One that takes longer is given up, and nothing is lost.
  const int count = result_.measured + result_.failed;
  const double one = count > 0 ? std::min(last_seconds_, measuring_seconds_ / count) : 0;
  const bool over = late_ && share < 1;
  if (!over && spent() + one <= deadline(share)) return false;
  if (share >= options_.search_share) result_.end = SearchEnd::kBudget;
  return true;
}

/// Seconds of the budget after which nothing of that part is begun.
double Search::deadline(double share) const {
  const double whole = options_.budget_seconds;
  if (share >= 1) return whole;
  return std::min(whole * share, whole - std::min(comparing_seconds_, whole / 2));
}

void Search::report() {
  const auto cost = current_.empty() ? std::nullopt : memo_.cost(current_);
  auto& curve = result_.curve;
  if (cost && (curve.empty() || *cost < curve.back().best_us)) curve.push_back({spent(), *cost});
  if (!options_.progress) return;
  Progress progress{stage_, spent(), options_.budget_seconds, 0, untuned_us_, 0, 0};
  if (!curve.empty()) progress.best_us = curve.back().best_us;
  progress.measured = result_.measured;
  progress.failed = result_.failed;
  options_.progress(progress);
}

/// Predicted by the best candidate; infinite where no template fits.
double Search::predicted(Range range) {
  const auto& candidates = memo_.of(range).candidates();
  return candidates.empty() ? HUGE_VAL : candidates.front().predicted_us;
}

bool Search::measure(Range range, std::size_t index) {
  SegmentMemo& segment = memo_.of(range);
  const auto incumbent = segment.best();
  const fusion::Choice* other = incumbent ? &segment.candidates()[*incumbent].choice : nullptr;
  const double before = landscape_.seconds();
  const double left = std::max(0.0, deadline(options_.search_share) - spent());
  Measurement measurement = landscape_.measure(range, segment.candidates()[index].choice, other,
                                               segment.best_us().value_or(0), left);
  if (measurement.late) {
    late_ = true;
    return false;
  }
  const bool ok = measurement.ok(), now = !measurement.remembered;
  if (now) measuring_seconds_ += last_seconds_ = landscape_.seconds() - before;
  ++(!now ? result_.remembered : ok ? result_.measured : result_.failed);
  segment.add(index, std::move(measurement));
  if (now && options_.measured) options_.measured(range, segment);
  report();
  return ok;
}

/// The first candidate in the model's order that works: what would run without any tuning. Times
/// those before it that fail; when time is up, takes the model's word.
std::size_t Search::first_that_runs(Range range, bool library_only, bool* found) {
  SegmentMemo& segment = memo_.of(range);
  for (std::size_t i = 0; i < segment.candidates().size(); ++i) {
    if (library_only && !segment.candidates()[i].is_library) continue;
    const auto& known = segment.measured(i);
    *found = true;
    if (!known && !out_of_time(options_.search_share)) measure(range, i);
    if (!known || known->ok()) return i;
  }
  *found = false;
  return 0;
}

/// A segment that nothing can run falls apart into its operators.
ComparedPlan Search::baseline(const char* name, Partition& partition, bool library_only) {
  ComparedPlan result{name, {}, 0, {}, false};
  bool all_known = true;
  for (std::size_t i = 0; i < partition.size(); ++i) {
    const Range range = partition[i];
    bool found = false;
    std::size_t index = first_that_runs(range, library_only, &found);
    if (!found && range.size() == 1) index = first_that_runs(range, false, &found);
    if (!found) {
      STOF_CHECK(range.size() > 1, kUnsupported,
                 "operator {}: none of its {} candidates runs; see them with stof explain",
                 range.first, memo_.of(range).candidates().size());
      partition.erase(partition.begin() + static_cast<std::ptrdiff_t>(i));
      for (int op = range.last; op >= range.first; --op)
        partition.insert(partition.begin() + static_cast<std::ptrdiff_t>(i), Range{op, op});
      --i;
      continue;
    }
    const SegmentMemo& segment = memo_.of(range);
    result.plan.choices.push_back(segment.candidates()[index].choice);
    const auto& known = segment.measured(index);
    all_known = all_known && known;
    if (known) result.sum_us += known->microseconds * landscape_.occurrences(range);
  }
  result.plan.partition = partition;
  if (!all_known) result.sum_us = 0;
  return result;
}

/// Times up to `count` more candidates; returns how many.
int Search::sample(Range range, int count) {
  const std::string key = landscape_.segment_key(range);
  int done = 0;
  while (done < count && !out_of_time(deadline_share_)) {
    const auto next = next_candidate(memo_.of(range), key, options_.prune_ratio, options_.seed);
    if (!next) break;
    measure(range, *next);
    ++done;
  }
  return done;
}

Trial Search::try_move(const Move& move, int samples) {
  Trial trial{move, 0, 0, false, ""};
  double predicted_before = 0, predicted_after = 0;
  for (const Range& range : move.before) predicted_before += predicted(range);
  for (const Range& range : move.after) predicted_after += predicted(range);
  if (std::isinf(predicted_after)) {
    trial.note = "no template";
    return trial;
  }
  if (predicted_after > predicted_before * options_.prune_ratio) {
    trial.note = fmt::format("predicted {:.1f} times slower", predicted_after / predicted_before);
    return trial;
  }
  for (const auto* side : {&move.before, &move.after})
    for (const Range& range : *side) sample(range, samples - memo_.of(range).num_measured());
  const auto before = memo_.cost(move.before), after = memo_.cost(move.after);
  STOF_ASSERT(before.has_value());
  trial.before_us = *before / landscape_.occurrences(move.before.front());
  if (!after) {
    trial.note = out_of_time(deadline_share_) ? "time was up" : "no candidate runs";
    return trial;
  }
  trial.after_us = *after / landscape_.occurrences(move.after.front());
  trial.kept = *after < *before * (1 - kHysteresis);
  return trial;
}

/// Stage 1. Tries moves, the most promising first, until none is left or time is up.
void Search::expand(Partition& partition, int samples) {
  stage_ = "fusion";
  std::set<std::string> tried;
  for (bool kept = true; kept;) {
    kept = false;
    for (const Move& move : moves_by_promise(partition)) {
      if (!tried.insert(move.text()).second) continue;
      if (out_of_time(deadline_share_)) return;
      const Trial& trial = trials_[move.text()] = try_move(move, samples);
      if (!trial.kept) continue;
      partition = current_ = after_move(partition, move);
      report();
      kept = true;
      break;
    }
  }
}

std::vector<Move> Search::moves_by_promise(const Partition& partition) {
  std::vector<std::pair<double, Move>> moves;
  for (Move& move : possible_moves(landscape_, partition)) {
    double gain = 0;
    for (const Range& range : move.before) gain += predicted(range);
    for (const Range& range : move.after) gain -= predicted(range);
    moves.emplace_back(gain * landscape_.occurrences(move.before.front()), std::move(move));
  }
  std::stable_sort(moves.begin(), moves.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Move> sorted;
  sorted.reserve(moves.size());
  for (auto& [gain, move] : moves) sorted.push_back(std::move(move));
  return sorted;
}

/// Stage 2. The first round gives every segment as many samples; later rounds share the same total
/// by what each segment gained in the round before.
void Search::refine(const Partition& partition) {
  stage_ = "parameters";
  std::vector<Range> segments;  // distinct ones
  std::set<std::string> keys;
  for (const Range& range : partition)
    if (keys.insert(landscape_.segment_key(range)).second) segments.push_back(range);
  const int total = options_.samples_per_round * static_cast<int>(segments.size());
  std::vector<int> shares(segments.size(), options_.samples_per_round);
  while (!out_of_time(deadline_share_)) {
    std::vector<double> gains(segments.size(), 0);
    int done = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      SegmentMemo& segment = memo_.of(segments[i]);
      const double before = segment.best_us().value_or(0);
      done += sample(segments[i], shares[i]);
      gains[i] =
          (before - segment.best_us().value_or(before)) * landscape_.occurrences(segments[i]);
    }
    if (done == 0) return;  // every candidate is known
    double sum = 0;
    for (double& gain : gains) sum += gain = std::max(gain, 0.0);
    // At least one each: a segment without luck in this round may have it in the next.
    for (std::size_t i = 0; i < segments.size(); ++i)
      shares[i] = sum > 0 ? std::max(1, static_cast<int>(std::lround(total * gains[i] / sum)))
                          : options_.samples_per_round;
  }
}

/// The last word: whole forward passes of the best schemes and of the two that need no tuning.
void Search::compare(const Partition& partition) {
  stage_ = "end to end";
  auto& compared = result_.compared;
  const auto add = [&](const char* name, const std::optional<Partition>& candidate) {
    if (!candidate || !memo_.cost(*candidate)) return;
    TunedPlan plan = memo_.plan(*candidate);
    for (const ComparedPlan& known : compared)
      if (known.plan.text() == plan.text()) return;
    compared.push_back({name, std::move(plan), *memo_.cost(*candidate), {}, false});
  };
  // In the order of preference among equals: the cheapest sum first.
  add("tuned", cheapest_cover(landscape_.num_operators(), measured_costs(landscape_, memo_)));
  add("stage 1", partition);
  add("rules, tuned", rules_);
  time_passes();
  // The untuned scheme stands until something beats it by more than noise; of what beats it the
  // fastest, and the first of those that are as fast.
  const bool timed = std::any_of(compared.begin(), compared.end(), [](const ComparedPlan& entry) {
    return entry.timed && entry.end_to_end.ok();
  });
  const auto us = [&](const ComparedPlan& entry) {
    if (timed)
      return entry.timed && entry.end_to_end.ok() ? entry.end_to_end.microseconds : HUGE_VAL;
    // A pass that was tried and failed is no choice, whatever its parts promise.
    return entry.sum_us > 0 && !entry.timed ? entry.sum_us : HUGE_VAL;
  };
  double fastest = HUGE_VAL;
  for (const ComparedPlan& entry : compared) fastest = std::min(fastest, us(entry));
  for (std::size_t i = compared.size(); i-- > 0;)
    if (us(compared[i]) * (1 - kHysteresis) <= fastest) result_.chosen = i;
  result_.usable = !std::isinf(us(result_.best()));
}

/// Times the passes whose segments are all known to run, as many as the time left allows, two at
/// least: a comparison of one is none.
void Search::time_passes() {
  deadline_share_ = 1;
  double left = options_.budget_seconds - spent();
  std::vector<std::size_t> chosen;
  std::vector<TunedPlan> plans;
  const auto offer = [&](std::size_t i) {
    const ComparedPlan& entry = result_.compared[i];
    const double seconds = kPassLaunches * entry.sum_us * 1e-6;
    if (entry.sum_us <= 0 || seconds > left) return;
    left -= seconds;
    chosen.push_back(i);
    plans.push_back(entry.plan);
  };
  // What must not be missed first: what is there untuned, and what was found.
  const auto is_library = [&](std::size_t i) { return result_.compared[i].name == kAllLibrary; };
  for (const bool library : {false, true})
    for (std::size_t i = 0; i < result_.compared.size(); ++i)
      if (is_library(i) == library) offer(i);
  if (plans.size() < 2 || out_of_time(1)) return;
  const auto measured = landscape_.measure_end_to_end(plans, options_.budget_seconds - spent());
  STOF_ASSERT(measured.size() == plans.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (measured[i].late) continue;
    ComparedPlan& entry = result_.compared[chosen[i]];
    entry.end_to_end = measured[i];
    entry.timed = true;
  }
}

SearchResult Search::run() {
  deadline_share_ = options_.search_share;
  current_ = rules_;
  ComparedPlan untuned = baseline("rules only", rules_, false);
  ComparedPlan plain = baseline(kAllLibrary, library_, true);
  current_ = rules_;
  untuned_us_ = untuned.sum_us;
  comparing_seconds_ = kPassLaunches * kMostPasses * untuned_us_ * 1e-6;
  const bool same = plain.plan.text() == untuned.plan.text();
  result_.compared.push_back(std::move(untuned));
  if (!same) result_.compared.push_back(std::move(plain));
  report();

  Partition partition = rules_;
  if (memo_.cost(partition)) improve(partition);
  compare(partition);
  for (auto& [text, trial] : trials_) result_.trials.push_back(std::move(trial));
  result_.segments = memo_.segments();
  result_.seconds = spent();
  return std::move(result_);
}

/// Both stages, in passes with twice the samples each, until nothing is left to time.
void Search::improve(Partition& partition) {
  for (int samples = options_.samples_per_trial;; samples *= 2) {
    const bool first = samples == options_.samples_per_trial;
    const int before = num_known();
    deadline_share_ = first ? options_.expansion_share : options_.search_share;
    expand(partition, samples);
    follow_model(samples);
    // What was measured in vain for one scheme may be right for another.
    take_cheapest_cover(partition);
    deadline_share_ = options_.search_share;
    refine(partition);
    if (before == num_known()) {
      widen(samples);
      take_cheapest_cover(partition);
      if (before == num_known() && samples >= most_candidates()) return;
    }
    if (out_of_time(options_.search_share)) return;
  }
}

void Search::take_cheapest_cover(Partition& partition) {
  const auto cover = cheapest_cover(landscape_.num_operators(), measured_costs(landscape_, memo_));
  STOF_ASSERT(cover.has_value());
  if (*memo_.cost(*cover) < *memo_.cost(partition) * (1 - kHysteresis)) partition = *cover;
  current_ = partition;
  report();
}

/// What each range costs: measured where it was, else as predicted, corrected by how the model did.
RangeCosts Search::expected_costs() {
  RangeCosts costs;
  const double scale = memo_.model_scale();
  for (const Range& range : allowed_ranges(landscape_)) {
    SegmentMemo& segment = memo_.of(range);
    const bool hopeless = segment.num_measured() > 0 && !segment.best();
    if (segment.candidates().empty() || hopeless) continue;
    costs[range] =
        segment.best_us().value_or(predicted(range) * scale) * landscape_.occurrences(range);
  }
  return costs;
}

/// Moves take one step at a time; this goes at once where the model expects the best scheme, and
/// again as what it finds there corrects the model.
void Search::follow_model(int samples) {
  while (!out_of_time(deadline_share_)) {
    const auto cover = cheapest_cover(landscape_.num_operators(), expected_costs());
    STOF_ASSERT(cover.has_value());
    int done = 0;
    for (const Range& range : *cover)
      done += sample(range, samples - memo_.of(range).num_measured());
    if (done == 0) return;
  }
}

/// The ranges that neither moves nor the model led to, those with the best schemes around first.
void Search::widen(int samples) {
  stage_ = "fusion";
  const RangeCosts costs = expected_costs();
  std::vector<std::pair<double, Range>> open;
  for (const auto& [range, cost] : costs) {
    const auto cover = cheapest_cover(landscape_.num_operators(), costs, &range);
    if (!cover) continue;
    double sum = 0;
    for (const Range& part : *cover) sum += costs.at(part);
    open.emplace_back(sum, range);
  }
  std::sort(open.begin(), open.end());
  for (const auto& [sum, range] : open)
    if (sum <= open.front().first * options_.prune_ratio)
      sample(range, samples - memo_.of(range).num_measured());
}

int Search::most_candidates() const {
  std::size_t most = 0;
  for (const auto& [key, segment] : memo_.segments())
    most = std::max(most, segment.candidates().size());
  return static_cast<int>(most);
}

}  // namespace

const char* to_string(SearchEnd end) {
  switch (end) {
    case SearchEnd::kExhausted:
      return "everything was tried";
    case SearchEnd::kBudget:
      return "the budget was spent";
    case SearchEnd::kStopped:
      return "stopped";
  }
  return "?";
}

SearchResult search(Landscape& landscape, const SearchOptions& options) {
  STOF_CHECK(options.budget_seconds > 0, kInvalidArgument,
             "budget: expected more than 0 seconds, got {}", options.budget_seconds);
  for (const auto* partition : {&options.rules, &options.all_library}) {
    int next = 0;
    for (const Range& range : *partition) {
      STOF_CHECK(range.first == next && range.last >= range.first, kInvalidArgument,
                 "scheme: expected segments that cover {} operators in order, got {}",
                 landscape.num_operators(), to_text(*partition));
      next = range.last + 1;
    }
    STOF_CHECK(next == landscape.num_operators(), kInvalidArgument,
               "scheme: expected segments that cover {} operators in order, got {}",
               landscape.num_operators(), to_text(*partition));
  }
  return Search(landscape, options).run();
}

}  // namespace stof::tune
