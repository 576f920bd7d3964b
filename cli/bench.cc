// stof bench: quick timings of this machine; the long ones with baselines are in bench/.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench_suite.h"
#include "commands.h"
#include "core/check.h"
#include "core/text.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "place.h"
#include "progress.h"

namespace stof::cli {
namespace {

struct BenchOptions {
  std::string suite = "attention";
  BenchSettings settings;
  PlaceArguments place;  ///< of the model
  bool json = false;
};

std::string format_detail(const nlohmann::ordered_json& value) {
  return value.is_number_float() ? fmt::format("{:.3g}", value.get<double>())
                                 : human_count(value.get<std::int64_t>());
}

void print_result_line(const BenchResult& result) {
  nlohmann::ordered_json json = {{"suite", result.suite},
                                 {"case", result.name},
                                 {"median_seconds", result.timing.median},
                                 {"fastest_seconds", result.timing.fastest},
                                 {"repeats", result.timing.repeats}};
  json.update(result.details);
  print_out("{}\n", json.dump());
  flush_output();  // a line as soon as it is known
}

void print_table(const std::vector<BenchResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"case", "median", "fastest"}};
  for (const auto& [name, value] : results.front().details.items()) rows[0].push_back(name);
  for (const BenchResult& result : results) {
    rows.push_back(
        {result.name, human_duration(result.timing.median), human_duration(result.timing.fastest)});
    for (const auto& [name, value] : result.details.items())
      rows.back().push_back(format_detail(value));
  }
  write_output(format_table(rows));
}

/// Options of other suites are refused, not ignored.
void check_options(const BenchOptions& options, const CLI::App& command) {
  const bool models = options.suite == "model";
  for (const char* name : {"--seq", "--model", "--device", "--dtype"}) {
    const bool of_models = std::string_view(name) != "--seq";
    STOF_CHECK(of_models == models || command.count(name) == 0, kInvalidArgument,
               "{}: expected none with the {} suite; it is the {}", name, options.suite,
               of_models ? "model suite's" : "mask and attention suites'");
  }
}

void run_bench(BenchOptions& options, const CLI::App& command, const Program& program) {
  check_options(options, command);
  std::vector<BenchResult> results;
  ProgressBar bar("bench " + options.suite, 100, program.quiet);
  const BenchSink sink = [&](const BenchResult& result, std::int64_t done, std::int64_t all) {
    if (options.json)
      print_result_line(result);
    else
      results.push_back(result);
    bar.update(100 * done / all);
  };
  if (options.suite == "mask")
    bench_mask(options.settings, sink);
  else if (options.suite == "attention")
    bench_attention(options.settings, sink);
  else {
    options.settings.load = load_options(options.place);
    const BenchPlace place = bench_model(options.settings, sink);
    if (options.settings.load.place == Place::kAuto) report_place(place.place, place.note, program);
  }
  if (!options.json) print_table(results);
}

}  // namespace

void add_bench_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<BenchOptions>();
  options->settings.model = default_model_folder();
  CLI::App& bench = *app.add_subcommand("bench", "Time masks, attention or a model, quickly");
  bench.fallthrough();
  bench.add_option("SUITE", options->suite, "What to time")
      ->check(one_of({"mask", "attention", "model"}))
      ->capture_default_str();
  bench.add_option("--seq", options->settings.seq, "Tokens (mask: 16384, attention: 2048)")
      ->transform(whole_number(1, 1 << 20));
  bench.add_option("--threads", options->settings.threads, "Threads (default: all cores)")
      ->transform(whole_number(1, 1024));
  bench
      .add_option("--model", options->settings.model,
                  "Encoder, decoder or T5 for the model suite: a folder or a .gguf file")
      ->capture_default_str();
  add_place_arguments(bench, options->place);
  bench.add_flag("--json", options->json, "One JSON object per case and line");
  bench.footer(examples({"stof bench attention --seq 4096", "stof bench mask --seq 131072",
                         "stof bench model --json", "stof bench model --model DIR --device cuda"}));
  bench.callback([options, &bench, &program] { run_bench(*options, bench, program); });
}

}  // namespace stof::cli
