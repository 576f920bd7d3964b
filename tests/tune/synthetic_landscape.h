#pragma once
// A landscape with made-up latencies and a clock that only measuring turns. Its optimum is found by
// trying every scheme, which the search does not.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/hash.h"
#include "tune/landscape.h"
#include "tune/moves.h"

namespace stof::tune {

class SyntheticLandscape : public Landscape {
 public:
  /// Operators 0, 3, 5, 8, 11, ... do matrix products; candidates differ by at least a tenth.
  SyntheticLandscape(int operators, std::int64_t seed) : count_(operators), seed_(seed) {}

  double seconds_per_measurement = 0.05;
  double seconds_per_comparison = 0.5;  ///< of one plan
  int candidates_per_segment = 8;
  /// What a measurement takes, by segment and how many there were; empty: always the same.
  std::function<double(Range, int)> seconds_of;
  /// What a measurement finds, by segment and candidate; empty: as synthesised.
  std::function<std::string(Range, int)> fault;
  /// Factor on a whole pass: what sums of segments do not tell.
  std::function<double(const TunedPlan&)> end_to_end_factor;
  int num_measured = 0;
  std::set<std::string> measured_twice;

  int num_operators() const override { return count_; }
  bool compute_intensive(int op) const override {
    return op % 8 == 0 || op % 8 == 3 || op % 8 == 5;
  }
  bool legal(Range range) const override {
    if (range.size() == 1) return true;
    int products = 0;
    for (int op = range.first; op <= range.last; ++op) products += compute_intensive(op);
    return products <= kMaxComputeIntensive && random("legal", range, 0) < 0.7;
  }
  std::string segment_key(Range range) const override { return to_text({range}); }
  int occurrences(Range) const override { return 12; }

  /// Fusing saves a tenth to a half of what the parts take, or costs as much.
  double true_us(Range range, int candidate) const {
    double base = 0;
    for (int op = range.first; op <= range.last; ++op) base += compute_intensive(op) ? 20 : 6;
    const double fused = range.size() == 1 ? 1 : 0.5 + 0.9 * random("fused", range, 0);
    // Steps of a tenth, so that no two candidates are within the hysteresis.
    const double rank = std::floor(random("rank", range, candidate) * 8);
    return base * fused * std::pow(1.1, rank);
  }

  std::vector<Candidate> candidates(Range range) override {
    std::vector<Candidate> list;
    for (int i = 0; i < candidates_per_segment; ++i) {
      const double guess = true_us(range, i) * (0.7 + 0.6 * random("model", range, i));
      const bool library = range.size() == 1 && i == 0;
      list.push_back({{library ? "library" : "own", {{"tile", i}}}, guess, library});
    }
    std::stable_sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
      return a.predicted_us < b.predicted_us;
    });
    return list;
  }

  Measurement measure(Range range, const fusion::Choice& choice, const fusion::Choice*, double,
                      double seconds) override {
    const double cost = seconds_of ? seconds_of(range, num_measured) : seconds_per_measurement;
    now_ += std::min(cost, std::max(seconds, 0.0));
    if (cost > seconds) return Measurement::time_was_up();
    ++num_measured;
    if (!seen_.insert(to_text({range}) + choice.text()).second)
      measured_twice.insert(to_text({range}) + " " + choice.text());
    const int index = static_cast<int>(choice.parameters.at("tile"));
    if (fault)
      if (const std::string what = fault(range, index); !what.empty()) return {0, what};
    return {true_us(range, index), ""};
  }

  std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                              double seconds) override {
    std::vector<Measurement> result;
    const double end = now_ + seconds;
    for (const TunedPlan& plan : plans) {
      if (result.size() > 1 && now_ + seconds_per_comparison > end) {
        result.push_back(Measurement::time_was_up());
        continue;
      }
      now_ += seconds_per_comparison;
      const double factor = end_to_end_factor ? end_to_end_factor(plan) : 1;
      result.push_back({plan_us(plan) * factor, ""});
    }
    return result;
  }

  double seconds() const override { return now_; }

  double plan_us(const TunedPlan& plan) const {
    double us = 0;
    for (std::size_t i = 0; i < plan.partition.size(); ++i) {
      const int index = static_cast<int>(plan.choices[i].parameters.at("tile"));
      us += true_us(plan.partition[i], index) * occurrences(plan.partition[i]);
    }
    return us;
  }

  double best_us(Range range) const {
    double best = HUGE_VAL;
    for (int i = 0; i < candidates_per_segment; ++i) best = std::min(best, true_us(range, i));
    return best;
  }

  /// Of all schemes, one by one.
  double optimum() const {
    std::map<Range, double> costs;
    for (int first = 0; first < count_; ++first)
      for (int last = first; last < count_; ++last)
        if (legal({first, last}))
          costs[{first, last}] = best_us({first, last}) * occurrences({first, last});
    double best = HUGE_VAL;
    for (std::uint32_t flips = 0; flips < 1u << (count_ - 1); ++flips) {
      double us = 0;
      int first = 0;
      for (int op = 0; op < count_; ++op) {
        if (op + 1 < count_ && !((flips >> op) & 1)) continue;
        const Range range{first, op};
        const auto cost = costs.find(range);
        us += cost != costs.end() ? cost->second : HUGE_VAL;
        first = op + 1;
      }
      best = std::min(best, us);
    }
    return best;
  }

  Partition separate() const {
    Partition all;
    for (int op = 0; op < count_; ++op) all.push_back({op, op});
    return all;
  }

 private:
  /// In [0, 1), the same on every machine.
  double random(const char* what, Range range, int index) const {
    const Fingerprint hash = Hasher()
                                 .add(what)
                                 .add(seed_)
                                 .add(static_cast<std::int64_t>(range.first))
                                 .add(static_cast<std::int64_t>(range.last))
                                 .add(static_cast<std::int64_t>(index))
                                 .finish();
    return static_cast<double>(hash.low >> 11) * 0x1p-53;
  }

  int count_;
  std::int64_t seed_;
  double now_ = 1000;
  std::set<std::string> seen_;
};

}  // namespace stof::tune
