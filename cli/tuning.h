#pragma once
// Tuning by a child process, with a progress line: what `stof tune` and `stof run --tune on` do.

#include <cstdint>
#include <string>
#include <vector>

#include "model_problem.h"
#include "tune/tuner.h"

namespace stof::cli {

struct Program;

/// "30s", "2m", "1.5": seconds where there is no unit. Throws InvalidArgument naming the option.
double parse_budget(const std::string& option, const std::string& text);

/// Searches, and stores what it finds. Ctrl-C ends it with the best so far.
tune::TuneResult tune_model(const ModelArguments& arguments, double budget_seconds,
                            const tune::Database& database, const Program& program);

/// Tunes for those numbers of rows of a run's batches that have no record here, those first that
/// most rows are in; says what it found. `lengths`: tokens of each text. All take their part of one
/// budget; what does not get any uses the nearest record.
void tune_missing(const ModelArguments& arguments, const std::vector<std::int64_t>& lengths,
                  std::int64_t batch, double budget_seconds, const Program& program);

}  // namespace stof::cli
