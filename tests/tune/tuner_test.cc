#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tuned.h"
#include "tune/explain.h"
#include "tune/small_problem.h"

namespace stof::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(Tuner, TunesAndFindsItAgain) {
  const Database database(folder_);
  Worker worker(cpu_child(), {});
  TuneOptions options;
  options.budget_seconds = 20;
  const TuneResult first = tune(small_problem(), worker, database, options);
  EXPECT_EQ(first.search.end, SearchEnd::kExhausted);
  EXPECT_EQ(first.search.failed, 0);
  EXPECT_EQ(worker.num_lost(), 0);
  EXPECT_TRUE(first.search.best().timed);
  EXPECT_EQ(first.scheme.size(), 14);

  const auto again = load_tuned(small_problem(), database, worker.environment());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->scheme, first.scheme);
  EXPECT_EQ(again->choices, first.choices);
  // Fewer rows and other masks take the same choices.
  TuningProblem other = small_problem();
  other.batch.offsets = {0, 64};
  ASSERT_TRUE(load_tuned(other, database, worker.environment()).has_value());
  EXPECT_EQ(load_tuned(other, database, worker.environment())->rows, 200);
  // For any number of rows what is run, segment by segment, is what was tuned: the same kernels.
  const Strip strip(std::make_shared<const graph::Graph>(small_graph(200)));
  for (const std::int64_t rows : {50, 56, 199, 800}) {
    other.batch.offsets = {0, rows};
    const auto near = load_tuned(other, database, worker.environment());
    ASSERT_TRUE(near.has_value());
    const Strip of_rows(std::make_shared<const graph::Graph>(small_graph(rows)));
    for (const Range& range : strip.partition(first.scheme))
      EXPECT_EQ(near->choices.at(segment_hash(of_rows.graph(), of_rows.segment(range))),
                first.choices.at(segment_hash(strip.graph(), strip.segment(range))));
  }
  other.batch.mask = mask::parse("causal");
  EXPECT_TRUE(load_tuned(other, database, worker.environment()).has_value());

  // Nothing is measured twice, also not by another process.
  const auto records = database.records();
  const TuneResult second = tune(small_problem(), worker, database, options);
  EXPECT_LT(second.search.seconds, first.search.seconds);
  for (const auto& [key, segment] : first.search.segments) {
    const auto found = second.search.segments.find(key);
    ASSERT_NE(found, second.search.segments.end());
    EXPECT_EQ(found->second.best_us(), segment.best_us());
  }
  EXPECT_THAT(database.records(), SizeIs(records.size()));
}

TEST_F(Tuner, DropsChoicesWhoseNumbersAreWrongWhenLoaded) {
  const Database database(folder_);
  TunedScheme tuned;
  {
    Worker worker(cpu_child(), {});
    TuneOptions options;
    options.budget_seconds = 1;
    tune(small_problem(), worker, database, options);
    tuned = *load_tuned(small_problem(), database, worker.environment());
  }
  const std::size_t count = tuned.choices.size();
  FaultyDevice device;
  revalidate(small_problem(), device, tuned);
  EXPECT_EQ(tuned.choices.size(), count);
  // As if the embedding's kernel had gone wrong since.
  for (auto& [hash, choice] : tuned.choices)
    if (choice.family == "row") choice.family = "unwritten";
  ::testing::internal::CaptureStderr();
  revalidate(small_problem(), device, tuned);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("unwritten chunk="));
  EXPECT_LT(tuned.choices.size(), count);
  for (const auto& [hash, choice] : tuned.choices) EXPECT_NE(choice.family, "unwritten");
  EXPECT_EQ(tuned.choices.size() + tuned.rejected.size(), count);
  for (const auto& [hash, choice] : tuned.rejected) EXPECT_EQ(choice.family, "unwritten");
  // What explain draws is what runs then, and it says so.
  const Explanation shown = explain(small_problem(), device, database, tuned);
  ASSERT_THAT(shown.notes, SizeIs(tuned.rejected.size()));
  EXPECT_THAT(shown.to_text(), HasSubstr("unwritten chunk="));
  EXPECT_THAT(shown.to_text(), HasSubstr(" is not used for "));
  for (const ExplainedSegment& segment : shown.segments)
    EXPECT_NE(segment.choice.family, "unwritten");

  // As if parameters were missing.
  const auto with_products_by = [&](const char* family) {
    TunedScheme changed = tuned;
    for (auto& [hash, choice] : changed.choices)
      if (choice.family == "onednn") choice.family = family;
    return changed;
  };
  TunedScheme lacking = with_products_by("lacking");
  ::testing::internal::CaptureStderr();
  revalidate(small_problem(), device, lacking);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("planted: no chunk"));
  EXPECT_LT(lacking.choices.size(), tuned.choices.size());
  TunedScheme unlucky = with_products_by("no memory");
  EXPECT_THROW(revalidate(small_problem(), device, unlucky), Error);
}

TEST_F(Tuner, SessionsReadAndRunARecordOnce) {
  const char* const before = ::getenv("STOF_CACHE");
  const std::string cache = before == nullptr ? "" : before;
  ::setenv("STOF_CACHE", folder_.c_str(), 1);
  {
    Worker worker(cpu_child(), {});
    TuneOptions options;
    options.budget_seconds = 1;
    tune(small_problem(), worker, Database(folder_ + "/tuning"), options);
  }
  int opened = 0;
  const auto open = [&opened] {
    ++opened;
    return make_cpu_device(1);
  };
  const exec::TunedOf tuned = model::tuned_segments(small_graph, open);
  const auto first = tuned(small_graph(200));
  EXPECT_TRUE(first.has_value() && !first->choices.empty());
  EXPECT_EQ(opened, 1);
  std::filesystem::remove_all(folder_);
  const auto fewer = tuned(small_graph(64));
  EXPECT_TRUE(fewer.has_value() && fewer->choices.size() == first->choices.size());
  EXPECT_EQ(opened, 1);
  EXPECT_FALSE(model::tuned_segments(small_graph, open)(small_graph(200)).has_value());
  EXPECT_EQ(opened, 1);
  before == nullptr ? ::unsetenv("STOF_CACHE") : ::setenv("STOF_CACHE", cache.c_str(), 1);
}

TEST_F(Tuner, KeepsFinishedRecordsWhenInterrupted) {
  const Database database(folder_);
  Worker worker(cpu_child(), {});
  int asked = 0;
  TuneOptions options;
  options.stop = [&] { return ++asked > 12; };
  const TuneResult result = tune(small_problem(), worker, database, options);
  EXPECT_EQ(result.search.end, SearchEnd::kStopped);
  EXPECT_GE(database.records().size(), 5u);
  EXPECT_TRUE(load_tuned(small_problem(), database, worker.environment()).has_value());
}

}  // namespace
}  // namespace stof::tune
