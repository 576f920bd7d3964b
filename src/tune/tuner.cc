#include "tune/tuner.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/hash.h"
#include "core/log.h"
#include "tune/stopwatch.h"

namespace stof::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// Sequences on which a choice is run before it is used: few rows, and as many as make whole tiles
/// and an odd part of one. The interpreter computes the few alone, in milliseconds.
const std::vector<std::vector<std::int64_t>> kRevalidated = {{0, 2, 5}, {0, 130, 261}};

std::string model_key(const TuningProblem& problem) {
  const Strip strip(std::make_shared<const graph::Graph>(problem.graph_of(1)));
  return Hasher().add("model").add(strip.structure()).finish().hex();
}

/// From every position on as many operators as `fits` accepts, one at least.
Partition greedy_partition(const Strip& strip, const std::function<bool(Range)>& fits) {
  Partition partition;
  for (int first = 0; first < strip.size();) {
    int last = first;
    for (int end = first + 1; end < strip.size(); ++end)
      if (strip.legal({first, end}) && fits({first, end})) last = end;
    partition.push_back({first, last});
    first = last + 1;
  }
  return partition;
}

/// A landscape that does not measure what the database knows.
class RememberingLandscape : public BenchLandscape {
 public:
  RememberingLandscape(const Strip& strip, Bench& bench, const BatchShape& batch,
                       const Database& database)
      : BenchLandscape(strip, bench, batch),
        database_(database),
        environment_(bench.environment()) {}

  Measurement measure(Range range, const fusion::Choice& choice, const fusion::Choice* incumbent,
                      double incumbent_us, double seconds) override {
    const std::string key = segment_key(range);
    auto known = known_.find(key);
    if (known == known_.end()) {
      auto found = database_.find(RecordKind::kSegment, key, environment_, 0, "", /*warn=*/false);
      // What was measured under other conditions is no match for what is measured now.
      const bool usable = found && !found->soft && !found->shipped;
      known = known_.emplace(key, usable ? std::move(found->record.measured) : Measured{}).first;
    }
    const auto measured = known->second.find(choice);
    if (measured != known->second.end())
      return {measured->second.microseconds, measured->second.failure,
              !measured->second.failure.empty(), /*late=*/false, /*remembered=*/true};
    return BenchLandscape::measure(range, choice, incumbent, incumbent_us, seconds);
  }

 private:
  using Measured = std::map<fusion::Choice, MeasuredChoice>;
  const Database& database_;
  Environment environment_;
  std::map<std::string, Measured> known_;
};

Record segment_record(const std::string& key, const SegmentMemo& segment, const std::string& what,
                      const Environment& environment) {
  Record record;
  record.key = key;
  record.what = what;
  record.environment = environment;
  record.choice = segment.candidates()[*segment.best()].choice;
  record.microseconds = *segment.best_us();
  for (std::size_t i = 0; i < segment.candidates().size(); ++i) {
    const auto& measured = segment.measured(i);
    // Memory, time and the driver may do better the next time.
    if (!measured || !(measured->ok() || measured->wrong)) continue;
    record.measured[segment.candidates()[i].choice] = {measured->microseconds, measured->failure};
    if (i == 0 && measured->ok()) record.untuned_microseconds = measured->microseconds;
  }
  return record;
}

std::string note_of(const TunedScheme& tuned, const fusion::Choice& choice, const Strip& strip,
                    Range range, const std::string& fault) {
  return fmt::format("tuning record {}: {} is not used for {}: {}", tuned.found.record.key,
                     choice.text(), strip.operators(range), fault);
}

double pass_us(const ComparedPlan& entry) {
  return entry.timed && entry.end_to_end.ok() ? entry.end_to_end.microseconds : entry.sum_us;
}

}  // namespace

std::string segment_record_key(const Strip& strip, Range range, const BatchShape& batch) {
  std::string key = strip.key(range);
  if (strip.segment(range).family != fusion::Family::kAttention) return key;
  Hasher hasher;
  hasher.add(key).add(batch.mask.fingerprint());
  for (const std::int64_t offset : batch.offsets) hasher.add(offset);
  return hasher.finish().hex();
}

BenchLandscape::BenchLandscape(const Strip& strip, Bench& bench, const BatchShape& batch)
    : strip_(strip), bench_(bench), batch_(batch) {}

bool BenchLandscape::legal(Range range) const {
  const auto [known, is_new] = legal_.try_emplace(range, false);
  if (is_new) known->second = strip_.legal(range);
  return known->second;
}

std::string BenchLandscape::segment_key(Range range) const {
  std::string& key = keys_[range];
  if (key.empty()) key = segment_record_key(strip_, range, batch_);
  return key;
}

double BenchLandscape::seconds() const {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

TuneResult tune(const TuningProblem& problem, Bench& bench, const Database& database,
                const TuneOptions& options) {
  const Stopwatch watch;
  const Strip strip(std::make_shared<const graph::Graph>(problem.graph_of(problem.batch.rows())));
  RememberingLandscape landscape(strip, bench, problem.batch, database);
  SearchOptions search_options;
  search_options.budget_seconds = options.budget_seconds;
  search_options.stop = options.stop;
  search_options.progress = options.progress;
  const Environment environment = bench.environment();
  // As they are made, so that a process that is killed loses the last one at most.
  search_options.measured = [&](Range range, const SegmentMemo& segment) {
    if (segment.best())
      database.store(segment_record(landscape.segment_key(range), segment, strip.operators(range),
                                    environment));
  };
  search_options.rules = strip.partition(bench.untuned_scheme());
  search_options.all_library = greedy_partition(strip, [&](Range range) {
    const std::vector<Candidate> candidates = landscape.candidates(range);
    return std::any_of(candidates.begin(), candidates.end(),
                       [](const Candidate& candidate) { return candidate.is_library; });
  });

  search_options.spent_seconds = options.spent_seconds + watch.seconds();

  TuneResult result;
  result.search = search(landscape, search_options);
  result.environment = environment;
  result.what =
      fmt::format("{} operators a layer, {} layers, {} sequences, {} rows, mask {}",
                  strip.layer().size(), strip.num_layers(), problem.batch.offsets.size() - 1,
                  problem.batch.rows(), problem.batch.mask.describe());
  const ComparedPlan& best = result.search.best();
  result.scheme = strip.scheme(best.plan.partition);
  Record record;
  record.kind = RecordKind::kScheme;
  record.key = model_key(problem);
  record.what = result.what;
  record.environment = result.environment;
  record.rows = problem.batch.rows();
  record.mask = problem.batch.mask.describe();
  record.batch = batch_key(problem.batch.mask, problem.batch.offsets);
  record.scheme = result.scheme.hex();
  record.untuned_scheme = strip.scheme(result.search.compared.front().plan.partition).hex();
  record.seconds = result.search.seconds;
  for (const auto& point : result.search.curve)
    record.curve.emplace_back(point.seconds, point.best_us);
  record.microseconds = pass_us(best);
  record.untuned_microseconds = pass_us(result.search.compared.front());
  for (std::size_t i = 0; i < best.plan.partition.size(); ++i) {
    const Range range = best.plan.partition[i];
    record.choices[to_text({range})] = best.plan.choices[i];
    result.choices[segment_hash(strip.graph(), strip.segment(range))] = best.plan.choices[i];
  }
  if (result.search.usable) database.store(record);
  return result;
}

std::optional<TunedScheme> load_tuned(const TuningProblem& problem, const Database& database,
                                      const Environment& environment) {
  const std::int64_t rows = problem.batch.rows();
  auto found = database.find(RecordKind::kScheme, model_key(problem), environment, rows,
                             batch_key(problem.batch.mask, problem.batch.offsets));
  if (!found) return std::nullopt;
  try {
    TunedScheme tuned;
    tuned.scheme = fusion::Scheme::from_text(found->record.scheme);
    tuned.rows = found->record.rows;
    const Strip strip(std::make_shared<const graph::Graph>(problem.graph_of(rows)));
    for (const Range& range : strip.partition(tuned.scheme)) {
      STOF_CHECK(strip.legal(range), kCorrupt, "scheme {}: segment {} is not legal",
                 tuned.scheme.hex(), to_text({range}));
      const auto choice = found->record.choices.find(to_text({range}));
      if (choice != found->record.choices.end())
        tuned.choices[segment_hash(strip.graph(), strip.segment(range))] = choice->second;
    }
    tuned.found = std::move(*found);
    return tuned;
  } catch (const Error& error) {
    log_warn("tuning record {} is ignored: {}", found->record.key, error.what());
    return std::nullopt;
  }
}

Database records_of_model(const TuningProblem& problem, const Database& database) {
  return database.snapshot(RecordKind::kScheme, model_key(problem));
}

void revalidate(const TuningProblem& problem, Device& device, TunedScheme& tuned) {
  Verdicts none;
  revalidate(
      problem, [&]() -> Device& { return device; }, tuned, none);
}

void revalidate(const TuningProblem& problem, const std::function<Device&()>& device,
                TunedScheme& tuned, Verdicts& known) {
  const Strip strip(std::make_shared<const graph::Graph>(problem.graph_of(problem.batch.rows())));
  std::optional<Validator> validator;
  for (const Range& range : strip.partition(tuned.scheme)) {
    const auto choice = tuned.choices.find(segment_hash(strip.graph(), strip.segment(range)));
    if (choice == tuned.choices.end()) continue;
    auto verdict = known.find({range, choice->second});
    if (verdict == known.end()) {
      // On the same rows for every number of rows: what is found out holds for all.
      if (!validator)
        validator.emplace(device(), problem.graph_of, problem.batch.mask, kRevalidated);
      std::string fault;
      try {
        fault = *validator->check(range, choice->second);
      } catch (const Error& error) {
        // The machine's state is not the record's fault; all else would stop the session as well.
        if (error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kCuda) throw;
        fault = error.what();
      }
      verdict = known.emplace(std::pair(range, choice->second), fault).first;
      if (!fault.empty()) log_warn("{}", note_of(tuned, choice->second, strip, range, fault));
    }
    if (verdict->second.empty()) continue;
    tuned.notes.push_back(note_of(tuned, choice->second, strip, range, verdict->second));
    tuned.rejected.insert(tuned.choices.extract(choice));
  }
}

}  // namespace stof::tune
