// stof tune: searches the fastest scheme and parameters for a model and keeps them.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/check.h"
#include "core/text.h"
#include "model_problem.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "tune/stopwatch.h"
#include "tune/tuner.h"
#include "tune/worker.h"

namespace stof::cli {
namespace {

struct TuneOptions {
  ModelArguments model;
  std::string budget = "30s";
  bool json = false;
  bool worker = false;  ///< the measuring process: requests come in on standard input
};

/// "30s", "2m", "1.5": seconds where there is no unit.
double parse_budget(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const bool known = unit.empty() || unit == "s" || unit == "m";
  STOF_CHECK(status == std::errc() && known && value > 0 && value <= 1e6, kInvalidArgument,
             "--budget: expected a time as 30s or 2m, got \"{}\"", text);
  return unit == "m" ? value * 60 : value;
}

std::atomic<bool> interrupted{false};

extern "C" void note_interrupt(int) {
  interrupted = true;
  // Who presses again does not want to wait.
  std::signal(SIGINT, SIG_DFL);
}

std::string ms_text(double us) { return us > 0 ? human_duration(us * 1e-6) : "?"; }

std::string progress_line(const tune::Progress& progress) {
  const auto left =
      static_cast<std::int64_t>(std::max(0.0, progress.budget_seconds - progress.seconds) + 0.5);
  std::string line = fmt::format("tuning, {}: best {}", progress.stage, ms_text(progress.best_us));
  if (progress.untuned_us > 0) line += fmt::format(" (untuned {})", ms_text(progress.untuned_us));
  line += fmt::format(", {} timed", progress.measured);
  if (progress.failed > 0) line += fmt::format(", {} faulty", progress.failed);
  return line + fmt::format(", eta {}:{:02}", left / 60, left % 60);
}

/// This program once more, as the process that measures.
std::vector<std::string> worker_command(const TuneOptions& options) {
  const ModelArguments& model = options.model;
  std::vector<std::string> command = {"/proc/self/exe", "tune",    "--worker", "--shape",
                                      model.shape,      "--mask",  model.mask, "--device",
                                      model.device,     "--dtype", model.dtype};
  if (model.threads > 0) {
    command.emplace_back("--threads");
    command.push_back(std::to_string(model.threads));
  }
  command.emplace_back("--");
  command.push_back(model.model);
  return command;
}

void print_json(const tune::TuneResult& result, const tune::Database& database) {
  const tune::SearchResult& search = result.search;
  nlohmann::ordered_json json = {
      {"what", result.what},       {"scheme", result.scheme.hex()}, {"chosen", search.best().name},
      {"seconds", search.seconds}, {"end", to_string(search.end)},  {"timed", search.measured},
      {"faulty", search.failed},   {"known", search.remembered},    {"folder", database.folder()}};
  for (const tune::ComparedPlan& entry : search.compared)
    json["compared"].push_back({{"name", entry.name},
                                {"segments", to_text(entry.plan.partition)},
                                {"sum_us", entry.sum_us},
                                {"end_to_end_us", entry.end_to_end.microseconds},
                                {"timed", entry.timed && entry.end_to_end.ok()}});
  print_out("{}\n", json.dump());
}

void print_text(const tune::TuneResult& result, const tune::Database& database) {
  const tune::SearchResult& search = result.search;
  print_out("{}\n", result.what);
  print_out("{} candidates timed, {} faulty, {} known before, in {}: {}\n\n", search.measured,
            search.failed, search.remembered, human_duration(search.seconds),
            to_string(search.end));
  std::vector<std::vector<std::string>> rows = {{"scheme", "segments", "sum", "whole pass", ""}};
  for (std::size_t i = 0; i < search.compared.size(); ++i) {
    const tune::ComparedPlan& entry = search.compared[i];
    rows.push_back({entry.name, std::to_string(entry.plan.partition.size()), ms_text(entry.sum_us),
                    entry.timed && entry.end_to_end.ok() ? ms_text(entry.end_to_end.microseconds)
                                                         : "not timed",
                    i == search.chosen ? "chosen" : ""});
  }
  if (search.usable)
    print_out("{}\n{} is kept in {}; stof explain shows it\n", format_table(rows),
              result.scheme.hex(), database.folder());
  else
    print_out("{}\nno scheme is kept: none is known to run; give it a larger --budget\n",
              format_table(rows));
}

void tune_model(const TuneOptions& options, const Program& program) {
  tune::TuneOptions tuning;
  tuning.budget_seconds = parse_budget(options.budget);
  const tune::TuningProblem problem = load_problem(options.model);
  const tune::Stopwatch watch;
  tune::Worker worker(tune::execute_child(worker_command(options)), {});
  tuning.spent_seconds = watch.seconds();
  const tune::Database database = tune::Database::standard();

  std::signal(SIGINT, note_interrupt);
  tuning.stop = [] { return interrupted.load(); };
  ProgressLine line(program.quiet);
  tuning.progress = [&](const tune::Progress& progress) { line.show(progress_line(progress)); };
  const tune::TuneResult result = tune::tune(problem, worker, database, tuning);
  line.wipe();
  std::signal(SIGINT, SIG_DFL);
  if (options.json)
    print_json(result, database);
  else
    print_text(result, database);
}

void run(const TuneOptions& options, const Program& program) {
  if (!options.worker) return tune_model(options, program);
  tune::serve(
      [&] {
        return std::make_unique<tune::DeviceBench>(open_device(options.model),
                                                   load_problem(options.model));
      },
      STDIN_FILENO);
}

}  // namespace

void add_tune_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App& command = *app.add_subcommand(
      "tune", "Search the fastest way to run a model here, and keep it for stof run --tune");
  command.fallthrough();
  add_model_arguments(command, options->model);
  command.add_option("--budget", options->budget, "Time to spend; Ctrl-C keeps the best so far")
      ->capture_default_str();
  command.add_flag("--json", options->json, "One JSON document");
  command.add_flag("--worker", options->worker)->group("");
  command.footer(examples({"stof tune models/bert-base --shape 8x512 --mask \"bigbird()\"",
                           "stof tune models/bert-base --device cpu --budget 2m"}));
  command.callback([options, &program] { run(*options, program); });
}

}  // namespace stof::cli
