#include "tune/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stof/error.h"
#include "tune/synthetic_landscape.h"

namespace stof::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SearchOptions options_for(const SyntheticLandscape& landscape, double budget = 1e6) {
  SearchOptions options;
  options.budget_seconds = budget;
  options.rules = options.all_library = landscape.separate();
  options.prune_ratio = 100;
  return options;
}

TEST(Search, FindsTheOptimumWithTimeEnough) {
  for (std::int64_t seed = 0; seed < 20; ++seed) {
    SyntheticLandscape landscape(12, seed);
    const double optimum = landscape.optimum();
    const SearchResult result = search(landscape, options_for(landscape));
    EXPECT_EQ(result.end, SearchEnd::kExhausted);
    // What is within the hysteresis of the optimum counts as found.
    EXPECT_LE(landscape.plan_us(result.best().plan), optimum / (1 - kHysteresis)) << seed;
    EXPECT_GE(landscape.plan_us(result.best().plan), optimum * (1 - 1e-9)) << seed;
    EXPECT_THAT(landscape.measured_twice, IsEmpty());
  }
}

TEST(Search, IsNearTheOptimumAfterAFractionOfTheMeasurements) {
  double sum = 0;
  for (std::int64_t seed = 0; seed < 20; ++seed) {
    SyntheticLandscape landscape(14, seed);
    SearchOptions options = options_for(landscape, 20);  // about 330 of some 700 candidates
    options.prune_ratio = 3;
    const SearchResult result = search(landscape, options);
    const double ratio = landscape.plan_us(result.best().plan) / landscape.optimum();
    EXPECT_LE(ratio, 1.25) << seed;
    sum += ratio;
  }
  EXPECT_LE(sum / 20, 1.08);
}

TEST(Search, SpendsItsBudgetAndNotMore) {
  for (const double budget : {0.6, 3.0, 10.0, 15.0}) {
    SyntheticLandscape landscape(14, 3);
    landscape.seconds_per_comparison = budget * 0.02;
    const double begin = landscape.seconds();
    const SearchResult result = search(landscape, options_for(landscape, budget));
    const double spent = landscape.seconds() - begin;
    EXPECT_EQ(result.end, SearchEnd::kBudget) << budget;
    EXPECT_LE(spent, budget);
    EXPECT_GE(spent, budget * 0.7);
    EXPECT_DOUBLE_EQ(result.seconds, spent);
  }
}

TEST(Search, KeepsItsBudgetWhereMeasurementsAreUneven) {
  for (const double budget : {2.0, 10.0, 40.0}) {
    for (std::int64_t seed = 0; seed < 10; ++seed) {
      SyntheticLandscape landscape(14, seed);
      landscape.seconds_per_comparison = budget * 0.02;
      // What no average tells: the first of a segment is checked as well, some take half a minute.
      landscape.seconds_of = [&](Range range, int count) {
        return count % 7 == 6 ? 30.0 : range.size() % 2 == 0 ? budget * 0.03 : 0.01;
      };
      const SearchResult result = search(landscape, options_for(landscape, budget));
      EXPECT_LE(result.seconds, budget) << seed;
      EXPECT_EQ(result.end, SearchEnd::kBudget);
      EXPECT_GT(result.measured, 0);
    }
  }
}

TEST(Search, LeavesTimeForTheLastComparison) {
  SyntheticLandscape landscape(14, 3);
  // Of long passes: 15 % of the budget would not do for two of them.
  const double pass_us = landscape.plan_us(
      {landscape.separate(), std::vector<fusion::Choice>(14, {"own", {{"tile", 0}}})});
  const double budget = 20 * pass_us * 1e-6;
  landscape.seconds_per_measurement = budget * 0.01;
  landscape.seconds_per_comparison = 5 * pass_us * 1e-6;
  const SearchResult result = search(landscape, options_for(landscape, budget));
  EXPECT_EQ(result.end, SearchEnd::kBudget);
  EXPECT_TRUE(result.compared.front().timed && result.best().timed);
  EXPECT_LE(result.seconds, budget);
  // What was spent before counts.
  SyntheticLandscape again(14, 3);
  SearchOptions options = options_for(again, 10);
  options.spent_seconds = 6;
  const SearchResult rest = search(again, options);
  EXPECT_GE(rest.seconds, 6);
  EXPECT_LE(rest.seconds, 10);
  EXPECT_LE(again.seconds(), 1000 + 4);
}

TEST(Search, TellsOfEveryMeasurementBeforeTheNext) {
  SyntheticLandscape landscape(8, 1);
  SearchOptions options = options_for(landscape, 5);
  int told = 0;
  options.measured = [&](Range, const SegmentMemo& segment) {
    EXPECT_EQ(++told, landscape.num_measured);
    EXPECT_GT(segment.num_measured(), 0);
  };
  const SearchResult result = search(landscape, options);
  EXPECT_EQ(told, result.measured);
}

TEST(Search, EndsByItselfWhereNothingIsLeft) {
  SyntheticLandscape landscape(4, 1);
  landscape.candidates_per_segment = 2;
  const SearchResult result = search(landscape, options_for(landscape));
  EXPECT_EQ(result.end, SearchEnd::kExhausted);
  EXPECT_LE(landscape.num_measured, 2 * 10);  // ten ranges of four operators
}

TEST(Search, TakesTheSameWayEveryTime) {
  const auto run = [] {
    SyntheticLandscape landscape(14, 5);
    const SearchResult result = search(landscape, options_for(landscape, 12));
    std::string story = result.best().plan.text();
    for (const Trial& trial : result.trials)
      story += "\n" + trial.move.text() + (trial.kept ? " kept" : "");
    for (const auto& point : result.curve) story += "\n" + std::to_string(point.best_us);
    return story;
  };
  EXPECT_EQ(run(), run());
}

TEST(Search, IsNeverSlowerThanUntuned) {
  for (std::int64_t seed = 0; seed < 50; ++seed)
    for (const double budget : {0.01, 0.3, 1.0, 4.0}) {
      SyntheticLandscape landscape(10, seed);
      const SearchResult result = search(landscape, options_for(landscape, budget));
      EXPECT_EQ(result.compared.front().name, "rules only");
      EXPECT_LE(landscape.plan_us(result.best().plan),
                landscape.plan_us(result.compared.front().plan));
    }
}

TEST(Search, BelievesWholePassesMoreThanSums) {
  SyntheticLandscape landscape(10, 2);
  // Whatever is fused gets slower in company.
  landscape.end_to_end_factor = [&](const TunedPlan& plan) {
    return plan.partition.size() < 10 ? 10.0 : 1.0;
  };
  const SearchResult result = search(landscape, options_for(landscape));
  EXPECT_EQ(result.best().plan.partition, landscape.separate());
  ASSERT_GE(result.compared.size(), 3u);
  EXPECT_EQ(result.compared[1].name, "all library");
  EXPECT_EQ(result.compared[2].name, "tuned");
}

TEST(Search, KeepsTheUntunedSchemeWithoutAClearGain) {
  SyntheticLandscape landscape(10, 2);
  double untuned = 0;
  landscape.end_to_end_factor = [&](const TunedPlan& plan) {
    if (untuned == 0) untuned = landscape.plan_us(plan);  // asked for first
    const double us = landscape.plan_us(plan);
    return (us == untuned ? untuned : untuned * 0.985) / us;
  };
  EXPECT_EQ(search(landscape, options_for(landscape)).best().name, "rules only");
}

TEST(Search, KeepsTheBestSoFarWhenStopped) {
  for (const int after : {0, 1, 7, 30, 100, 200}) {
    SyntheticLandscape landscape(14, 4);
    SearchOptions options = options_for(landscape);
    options.stop = [&] { return landscape.num_measured >= after; };
    double best_seen = 0;
    options.progress = [&](const Progress& progress) { best_seen = progress.best_us; };
    const SearchResult result = search(landscape, options);
    EXPECT_EQ(result.end, SearchEnd::kStopped);
    EXPECT_EQ(landscape.num_measured, after);
    EXPECT_LE(landscape.plan_us(result.best().plan),
              landscape.plan_us(result.compared.front().plan));
    if (after >= 100) {
      EXPECT_LE(landscape.plan_us(result.best().plan), best_seen / (1 - kHysteresis));
      EXPECT_NE(result.best().name, "rules only");
    }
  }
}

TEST(Search, NeverChoosesAFaultyCandidate) {
  for (std::int64_t seed = 0; seed < 10; ++seed) {
    SyntheticLandscape landscape(12, seed);
    // Every third candidate is faulty; some are the model's favourites.
    const auto faulty = [](Range range, int candidate) {
      return (range.first + range.last + candidate) % 3 == 0;
    };
    landscape.fault = [&](Range range, int candidate) {
      return faulty(range, candidate) ? "NaN at row 0" : "";
    };
    const SearchResult result = search(landscape, options_for(landscape, 20));
    EXPECT_GT(result.failed, 0);
    for (const ComparedPlan& entry : result.compared)
      for (std::size_t i = 0; i < entry.plan.partition.size(); ++i)
        EXPECT_FALSE(faulty(entry.plan.partition[i],
                            static_cast<int>(entry.plan.choices[i].parameters.at("tile"))))
            << entry.name << " " << entry.plan.text();
  }
}

TEST(Search, TakesASegmentApartThatNothingCanRun) {
  SyntheticLandscape landscape(10, 0);
  Range fused{0, 1};
  while (!landscape.legal(fused)) ++fused.first, ++fused.last;
  SearchOptions options = options_for(landscape, 5);
  options.rules.clear();
  for (int op = 0; op < 10; ++op) {
    if (op == fused.first) options.rules.push_back(fused);
    if (op < fused.first || op > fused.last) options.rules.push_back({op, op});
  }
  landscape.fault = [&](Range range, int) { return range == fused ? "crashed (signal 11)" : ""; };
  const SearchResult result = search(landscape, options);
  EXPECT_EQ(result.compared.front().plan.partition, landscape.separate());
}

TEST(Search, SaysWhichOperatorNothingCanRun) {
  SyntheticLandscape landscape(6, 0);
  landscape.fault = [](Range range, int) { return range == Range{3, 3} ? "did not end" : ""; };
  try {
    search(landscape, options_for(landscape));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("operator 3: none of its 8 candidates runs"));
  }
}

TEST(Search, RefusesSchemesThatDoNotCoverTheOperators) {
  SyntheticLandscape landscape(4, 0);
  for (const Partition& wrong : {Partition{{0, 1}, {2, 2}}, Partition{{0, 1}, {3, 3}},
                                 Partition{{0, 1}, {1, 3}}, Partition{}}) {
    SearchOptions options = options_for(landscape);
    options.rules = wrong;
    EXPECT_THROW(search(landscape, options), Error);
  }
  SearchOptions options = options_for(landscape);
  options.budget_seconds = 0;
  EXPECT_THROW(search(landscape, options), Error);
}

TEST(SegmentMemo, TakesTheFirstOfThoseThatAreAsFast) {
  std::vector<Candidate> candidates(4);
  SegmentMemo memo(candidates);
  EXPECT_FALSE(memo.best().has_value());
  memo.add(3, {100, ""});
  EXPECT_EQ(memo.best(), 3u);
  memo.add(2, {99, ""});  // within two hundredths: the earlier one, whatever came first
  EXPECT_EQ(memo.best(), 2u);
  memo.add(0, {50, "wrong at row 3"});
  EXPECT_EQ(memo.best(), 2u);
  memo.add(1, {101.5, ""});
  EXPECT_EQ(memo.best(), 2u);
  EXPECT_EQ(memo.best_us(), 99);
}

/// Everything is legal; operators 1 and 4 do matrix products.
class SmallLandscape : public SyntheticLandscape {
 public:
  SmallLandscape() : SyntheticLandscape(6, 0) {}
  bool compute_intensive(int op) const override { return op == 1 || op == 4; }
  bool legal(Range) const override { return true; }
};

TEST(Moves, AreThoseOfThePaperAndSplit) {
  const SmallLandscape landscape;
  std::vector<std::string> texts;
  for (const Move& move : possible_moves(landscape, {{0, 1}, {2, 3}, {4, 5}}))
    texts.push_back(move.text());
  EXPECT_THAT(texts, ElementsAre("expand 0-1 2-3 -> 0-3", "seize 0-1 2-3 -> 0-2 3",
                                 "compete 0-1 2-3 -> 0 1-3", "expand 2-3 4-5 -> 2-5",
                                 "seize 2-3 4-5 -> 2 3-5", "compete 2-3 4-5 -> 2-4 5",
                                 "split 0-1 -> 0 1", "split 2-3 -> 2 3", "split 4-5 -> 4 5"));
}

TEST(Moves, HoldTwoMatrixProductsASegment) {
  SyntheticLandscape landscape(9, 0);  // products at 0, 3, 5, 8
  for (const Move& move : possible_moves(landscape, {{0, 2}, {3, 5}, {6, 8}}))
    for (const Range& range : move.after) {
      int products = 0;
      for (int op = range.first; op <= range.last; ++op)
        products += landscape.compute_intensive(op);
      EXPECT_LE(products, kMaxComputeIntensive) << move.text();
    }
}

}  // namespace
}  // namespace stof::tune
