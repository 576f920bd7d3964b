// stof explain MODEL: how a model's operators are fused and run, as text, page or trace.

#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "core/check.h"
#include "core/file.h"
#include "model_problem.h"
#include "options.h"
#include "output.h"
#include "tune/explain.h"

namespace stof::cli {
namespace {

struct ModelOptions {
  ModelArguments model;
  bool untuned = false;
  bool json = false;
  std::string html, trace;
};

void explain_model(const ModelOptions& options) {
  if (!options.html.empty()) require_writable("--html", options.html);
  if (!options.trace.empty()) require_writable("--trace", options.trace);
  const tune::TuningProblem problem = load_problem(options.model);
  const auto device = open_device(options.model);
  const tune::Database database = tune::Database::standard();
  std::optional<tune::TunedScheme> tuned;
  if (!options.untuned) tuned = load_tuned(problem, database, device->environment());
  if (tuned) revalidate(problem, *device, *tuned);  // as what runs it would
  const tune::Explanation explanation =
      explain(problem, *device, database, tuned, exec::FuseSwitches::from_environment());
  if (!options.html.empty()) write_file(options.html, explanation.to_html());
  if (!options.trace.empty()) write_file(options.trace, explanation.to_trace());
  print_out("{}", options.json ? explanation.to_json() + "\n" : explanation.to_text());
}

}  // namespace

void add_explain_model_options(CLI::App& explain, const Program&) {
  auto options = std::make_shared<ModelOptions>();
  add_model_arguments(explain, options->model);
  explain.get_option("MODEL")->required(false);  // explain attention has none
  explain.add_flag("--untuned", options->untuned, "What would run without tuning");
  explain.add_flag("--json", options->json, "One JSON document");
  explain.add_option("--html", options->html, "Also write one self-contained page");
  explain.add_option("--trace", options->trace, "Also write a trace that Perfetto and Chrome show");
  explain.callback([options, &explain] {
    if (!explain.get_subcommands().empty()) return;
    STOF_CHECK(!options->model.model.empty(), kInvalidArgument,
               "expected a model's folder, or attention and a mask; see stof explain --help");
    explain_model(*options);
  });
}

}  // namespace stof::cli
