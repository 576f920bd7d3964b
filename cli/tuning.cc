#include "tuning.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <functional>
#include <map>

#include "commands.h"
#include "core/check.h"
#include "core/text.h"
#include "exec/plan.h"
#include "output.h"
#include "progress.h"
#include "tune/stopwatch.h"
#include "tune/worker.h"

namespace stof::cli {
namespace {

std::atomic<bool> interrupted{false};

extern "C" void note_interrupt(int) {
  interrupted = true;
  // Who presses again does not want to wait.
  std::signal(SIGINT, SIG_DFL);
}

std::string progress_line(const tune::Progress& progress) {
  const auto left = std::lround(std::max(0.0, progress.budget_seconds - progress.seconds));
  std::string line =
      fmt::format("tuning, {}: best {}", progress.stage,
                  progress.best_us > 0 ? human_duration(progress.best_us * 1e-6) : "?");
  if (progress.untuned_us > 0)
    line += fmt::format(" (untuned {})", human_duration(progress.untuned_us * 1e-6));
  line += fmt::format(", {} timed", progress.measured);
  if (progress.failed > 0) line += fmt::format(", {} faulty", progress.failed);
  return line + fmt::format(", eta {}:{:02}", left / 60, left % 60);
}

/// This program once more, as the process that measures.
std::vector<std::string> worker_command(const ModelArguments& model) {
  std::vector<std::string> command = {"/proc/self/exe", "tune",    "--worker", "--shape",
                                      model.shape,      "--mask",  model.mask, "--device",
                                      model.device,     "--dtype", model.dtype};
  const auto add = [&](const char* option, std::int64_t value) {
    if (value <= 0) return;
    command.emplace_back(option);
    command.push_back(std::to_string(value));
  };
  add("--threads", model.threads);
  add("--rows", model.rows);
  command.emplace_back("--");
  command.push_back(model.model);
  return command;
}

/// Batches of one number of rows.
struct BatchesOfRows {
  std::int64_t rows = 0;               ///< that a session computes
  std::int64_t texts = 0, tokens = 0;  ///< of the first such batch
  std::int64_t weight = 0;             ///< rows of all such batches
};

/// As encoders make them: longest texts first.
std::vector<BatchesOfRows> batches_of(std::vector<std::int64_t> lengths, std::int64_t batch) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::map<std::int64_t, BatchesOfRows> by_rows;
  for (std::size_t begin = 0; begin < lengths.size(); begin += static_cast<std::size_t>(batch)) {
    const std::size_t end = std::min(lengths.size(), begin + static_cast<std::size_t>(batch));
    BatchesOfRows one;
    for (std::size_t i = begin; i < end && lengths[i] > 0; ++i, ++one.texts)
      one.tokens += lengths[i];
    if (one.tokens == 0) continue;
    one.rows = exec::bucket_rows(one.tokens);
    BatchesOfRows& all = by_rows.try_emplace(one.rows, one).first->second;
    all.weight += one.rows;
  }
  std::vector<BatchesOfRows> list;
  list.reserve(by_rows.size());
  for (const auto& [rows, batches] : by_rows) list.push_back(batches);
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.weight > b.weight; });
  return list;
}

}  // namespace

double parse_budget(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const bool known = unit.empty() || unit == "s" || unit == "m";
  STOF_CHECK(status == std::errc() && known && value > 0 && value <= 1e6, kInvalidArgument,
             "{}: expected a time as 30s or 2m, got \"{}\"", option, text);
  return unit == "m" ? value * 60 : value;
}

tune::TuneResult tune_model(const ModelArguments& arguments, double budget_seconds,
                            const tune::Database& database, const Program& program) {
  const tune::Stopwatch watch;
  interrupted = false;
  std::signal(SIGINT, note_interrupt);
  tune::TuneOptions tuning;
  tuning.budget_seconds = budget_seconds;
  const tune::TuningProblem problem = load_problem(arguments);
  tune::Worker worker(tune::execute_child(worker_command(arguments)), {});
  tuning.spent_seconds = watch.seconds();

  tuning.stop = [] { return interrupted.load(); };
  ProgressLine line(program.quiet);
  tuning.progress = [&](const tune::Progress& progress) { line.show(progress_line(progress)); };
  tune::TuneResult result = tune::tune(problem, worker, database, tuning);
  line.wipe();
  std::signal(SIGINT, SIG_DFL);
  return result;
}

void tune_missing(const ModelArguments& arguments, const std::vector<std::int64_t>& lengths,
                  std::int64_t batch, double budget_seconds, const Program& program) {
  const tune::Stopwatch watch;
  const tune::Database database = tune::Database::standard();
  const tune::Environment environment = environment_of(arguments);
  std::vector<ModelArguments> missing;
  for (const BatchesOfRows& batches : batches_of(lengths, batch)) {
    ModelArguments one = arguments;
    one.shape = fmt::format("{}x{}", batches.texts, batches.tokens / batches.texts);
    one.rows = batches.rows;
    const auto tuned = load_tuned(load_problem(one), database, environment);
    if (!tuned || tuned->rows != batches.rows) missing.push_back(one);
  }
  for (std::size_t i = 0; i < missing.size() && !interrupted; ++i) {
    const double left = budget_seconds - watch.seconds();
    if (left <= 0) {
      write_note(
          fmt::format("the tuning budget is spent: {} numbers of rows use the nearest record",
                      missing.size() - i));
      return;
    }
    const tune::TuneResult result =
        tune_model(missing[i], left / static_cast<double>(missing.size() - i), database, program);
    const tune::ComparedPlan& best = result.search.best();
    const bool timed = best.timed && best.end_to_end.ok();
    if (!program.quiet)
      write_note(fmt::format(
          "tuned for {} rows in {}, {} candidates timed: {}", missing[i].rows,
          human_duration(result.search.seconds), result.search.measured,
          timed ? human_duration(best.end_to_end.microseconds * 1e-6) + " a pass, " + best.name
                : "no pass was timed, a larger --tune-budget would do"));
  }
}

}  // namespace stof::cli
