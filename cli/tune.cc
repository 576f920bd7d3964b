// stof tune: searches the fastest scheme and parameters for a model and keeps them.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/text.h"
#include "model_problem.h"
#include "options.h"
#include "output.h"
#include "tune/worker.h"
#include "tuning.h"

namespace stof::cli {
namespace {

struct TuneOptions {
  ModelArguments model;
  std::string budget = "30s";
  bool json = false;
  bool worker = false;  ///< the measuring process: requests come in on standard input
};

std::string ms_text(double us) { return us > 0 ? human_duration(us * 1e-6) : "?"; }

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

void run(const TuneOptions& options, const Program& program) {
  if (options.worker) {
    const auto make_bench = [&] {
      return std::make_unique<tune::DeviceBench>(open_device(options.model),
                                                 load_problem(options.model));
    };
    tune::serve(make_bench, STDIN_FILENO);
    return;
  }
  const tune::Database database = tune::Database::standard();
  const tune::TuneResult result =
      tune_model(options.model, parse_budget("--budget", options.budget), database, program);
  if (options.json)
    print_json(result, database);
  else
    print_text(result, database);
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
