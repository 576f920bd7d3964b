#pragma once
// Tunes a model for a shape: search, records, and what a session takes from them.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exec/batch.h"
#include "fusion/scheme.h"
#include "tune/bench.h"
#include "tune/database.h"
#include "tune/device_bench.h"
#include "tune/search.h"
#include "tune/strip.h"

namespace stof::tune {

/// What a segment's latencies are filed under: its hash, of attention with mask and lengths, which
/// its time depends on.
std::string segment_record_key(const Strip& strip, Range range, const BatchShape& batch);

/// The landscape of a strip whose latencies a bench measures, and this process's clock.
class BenchLandscape : public Landscape {
 public:
  /// All outlive this.
  BenchLandscape(const Strip& strip, Bench& bench, const BatchShape& batch);

  int num_operators() const override { return strip_.size(); }
  bool compute_intensive(int op) const override { return strip_.compute_intensive(op); }
  bool legal(Range range) const override;
  std::string segment_key(Range range) const override;
  int occurrences(Range range) const override { return strip_.occurrences(range); }
  std::vector<Candidate> candidates(Range range) override { return bench_.candidates(range); }
  Measurement measure(Range range, const fusion::Choice& choice, const fusion::Choice* incumbent,
                      double incumbent_us, double seconds) override {
    return bench_.measure(range, choice, incumbent, incumbent_us, seconds);
  }
  std::vector<Measurement> measure_end_to_end(const std::vector<TunedPlan>& plans,
                                              double seconds) override {
    return bench_.measure_end_to_end(plans, seconds);
  }
  double seconds() const override;

 private:
  const Strip& strip_;
  Bench& bench_;
  const BatchShape& batch_;
  mutable std::map<Range, bool> legal_;
  mutable std::map<Range, std::string> keys_;
};

struct TuneOptions {
  double budget_seconds = 30;
  double spent_seconds = 0;  ///< of the budget, before: starting the process that measures
  std::function<bool()> stop;
  std::function<void(const Progress&)> progress;
};

/// What tuning did, and what it is measured against.
struct TuneResult {
  SearchResult search;
  fusion::Scheme scheme;
  exec::Choices choices;  ///< for a session
  Environment environment;
  std::string what;  ///< "14 operators a layer, 12 layers, 4096 rows, mask bigbird()"
};

/// Searches with `bench` and stores what it found. Records of the database are believed: what they
/// hold is not measured again. Throws what search() and Database::store() do.
TuneResult tune(const TuningProblem& problem, Bench& bench, const Database& database,
                const TuneOptions& options);

/// What tuning found before for this model and environment, at the rows nearest to these; of those
/// under the same mask and lengths, else under whatever: segments other than attention know nothing
/// of them.
struct TunedScheme {
  fusion::Scheme scheme;
  exec::Choices choices;
  exec::Choices rejected;          ///< by revalidate()
  std::vector<std::string> notes;  ///< what was rejected and why, a line each
  std::int64_t rows = 0;           ///< that were tuned for
  FoundRecord found;
};
std::optional<TunedScheme> load_tuned(const TuningProblem& problem, const Database& database,
                                      const Environment& environment);

/// What load_tuned() looks at for this model, at any number of rows, read now.
Database records_of_model(const TuningProblem& problem, const Database& database);

/// What is wrong with a choice for a segment of a model, empty where it is right, so that each is
/// run once.
using Verdicts = std::map<std::pair<Range, fusion::Choice>, std::string>;

/// Runs what was loaded on 5 rows and on 261, compares every element, and drops every choice whose
/// numbers are wrong, that writes where it may not, or that does not run, with one line each: a
/// record may be intact and its kernel no longer. Throws OutOfMemory and Cuda, which are no fault
/// of a record.
void revalidate(const TuningProblem& problem, Device& device, TunedScheme& tuned);
/// The same where some are known already, of this model under this mask at whatever rows. Asks for
/// a device only when there is something to run.
void revalidate(const TuningProblem& problem, const std::function<Device&()>& device,
                TunedScheme& tuned, Verdicts& known);

}  // namespace stof::tune
