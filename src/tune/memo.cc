#include "tune/memo.h"

#include <algorithm>

#include "core/check.h"
#include "core/hash.h"

namespace stof::tune {

std::string to_text(const Partition& partition) {
  std::string text;
  for (const Range& range : partition) {
    if (!text.empty()) text += ' ';
    text += range.size() > 1 ? fmt::format("{}-{}", range.first, range.last)
                             : std::to_string(range.first);
  }
  return text;
}

std::string TunedPlan::text() const {
  std::string text = to_text(partition);
  for (const fusion::Choice& choice : choices) text += " | " + choice.text();
  return text;
}

SegmentMemo::SegmentMemo(std::vector<Candidate> candidates)
    : candidates_(std::move(candidates)), measured_(candidates_.size()) {}

void SegmentMemo::add(std::size_t index, Measurement measurement) {
  STOF_ASSERT(index < measured_.size() && !measured_[index]);
  measured_[index] = std::move(measurement);
  ++num_measured_;
}

std::optional<std::size_t> SegmentMemo::best() const {
  double fastest = 0;
  bool any = false;
  for (const auto& measurement : measured_) {
    if (!measurement || !measurement->ok()) continue;
    fastest = any ? std::min(fastest, measurement->microseconds) : measurement->microseconds;
    any = true;
  }
  if (!any) return std::nullopt;
  for (std::size_t i = 0; i < measured_.size(); ++i) {
    const auto& measurement = measured_[i];
    if (measurement && measurement->ok() &&
        measurement->microseconds <= fastest * (1 + kHysteresis))
      return i;
  }
  return std::nullopt;
}

std::optional<double> SegmentMemo::best_us() const {
  const auto index = best();
  if (!index) return std::nullopt;
  return measured_[*index]->microseconds;
}

std::optional<std::size_t> next_candidate(const SegmentMemo& segment, const std::string& key,
                                          double prune_ratio, std::uint64_t seed) {
  const auto& candidates = segment.candidates();
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool hopeless =
        candidates[i].predicted_us > candidates.front().predicted_us * prune_ratio;
    if (!segment.measured(i) && (!hopeless || candidates[i].is_library)) open.push_back(i);
  }
  if (open.empty()) return std::nullopt;
  const int turn = segment.num_measured();
  if (turn % 2 == 0 || open.size() == 1) return open.front();
  const Fingerprint random = Hasher()
                                 .add(static_cast<std::int64_t>(seed))
                                 .add(key)
                                 .add(static_cast<std::int64_t>(turn))
                                 .finish();
  return open[random.low % open.size()];
}

SegmentMemo& Memo::of(Range range) {
  SegmentMemo*& known = by_range_[range];
  if (known == nullptr) {
    const std::string key = landscape_.segment_key(range);
    auto found = segments_.find(key);
    if (found == segments_.end())
      found = segments_.emplace(key, SegmentMemo(landscape_.candidates(range))).first;
    known = &found->second;
  }
  return *known;
}

std::optional<double> Memo::cost(const Partition& partition) {
  double sum = 0;
  for (const Range& range : partition) {
    const auto best = of(range).best_us();
    if (!best) return std::nullopt;
    sum += *best * landscape_.occurrences(range);
  }
  return sum;
}

TunedPlan Memo::plan(const Partition& partition) {
  TunedPlan plan{partition, {}};
  for (const Range& range : partition) {
    const SegmentMemo& segment = of(range);
    const auto best = segment.best();
    STOF_ASSERT(best.has_value());
    plan.choices.push_back(segment.candidates()[*best].choice);
  }
  return plan;
}

double Memo::model_scale() const {
  std::vector<double> ratios;
  for (const auto& [key, segment] : segments_)
    if (const auto best = segment.best())
      ratios.push_back(*segment.best_us() / segment.candidates()[*best].predicted_us);
  if (ratios.empty()) return 1;
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

RangeCosts measured_costs(Landscape& landscape, Memo& memo) {
  RangeCosts costs;
  for (int first = 0; first < landscape.num_operators(); ++first)
    for (int last = first; last < landscape.num_operators(); ++last) {
      const Range range{first, last};
      if (!landscape.legal(range)) continue;
      if (const auto best = memo.of(range).best_us())
        costs[range] = *best * landscape.occurrences(range);
    }
  return costs;
}

std::optional<Partition> cheapest_cover(int num_operators, const RangeCosts& costs,
                                        const Range* through) {
  struct Step {
    double us = 0;
    int segments = 0;
    int from = -1;  ///< first operator of the last segment; -1: not reached
  };
  std::vector<Step> steps(static_cast<std::size_t>(num_operators) + 1);
  steps[0].from = 0;
  const auto at_odds = [&](Range range) {
    return through != nullptr && range != *through && range.first <= through->last &&
           range.last >= through->first;
  };
  // Ordered by their first operators: whatever leads to a range has been seen before it.
  for (const auto& [range, cost] : costs) {
    const Step& before = steps[static_cast<std::size_t>(range.first)];
    if (before.from < 0 || at_odds(range)) continue;
    Step& step = steps[static_cast<std::size_t>(range.last) + 1];
    const double us = before.us + cost;
    const int segments = before.segments + 1;
    if (step.from < 0 || us < step.us || (us == step.us && segments < step.segments))
      step = {us, segments, range.first};
  }
  if (steps.back().from < 0) return std::nullopt;
  Partition cover;
  for (int end = num_operators; end > 0; end = steps[static_cast<std::size_t>(end)].from)
    cover.push_back({steps[static_cast<std::size_t>(end)].from, end - 1});
  std::reverse(cover.begin(), cover.end());
  return cover;
}

}  // namespace stof::tune
