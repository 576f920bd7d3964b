// The stof program: parses, runs one subcommand, turns every failure into one line and an exit
// code.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>

#include "commands.h"
#include "options.h"
#include "output.h"
#include "stof/error.h"
#include "stof/system_info.h"

namespace {

using namespace stof::cli;

constexpr int kUserFault = 2;
constexpr int kWorldFault = 1;

/// The first line says all; a mask error's quoted text and caret follow below it.
int report(const std::string& message, int code) {
  write_error(message);
  return code;
}

/// What went wrong in `command`, in our words where CLI11's do not say what was expected.
std::string parse_message(const CLI::App& app, const CLI::App& command,
                          const CLI::ParseError& error) {
  // Through fallthrough() a command's leftovers may lie with any of its parents.
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const std::vector<const CLI::App*> subcommands = command.get_subcommands({});
  if (!subcommands.empty()) {
    std::vector<std::string> names;
    names.reserve(subcommands.size());
    for (const CLI::App* sub : subcommands) names.push_back(sub->get_name());
    return fmt::format("expected a command, one of {}; got {}", fmt::join(names, ", "),
                       unknown.empty() ? "none" : "\"" + unknown.front() + "\"");
  }
  if (!unknown.empty())
    return fmt::format("unknown option or argument {}", fmt::join(unknown, " "));
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;  // becomes the innermost one the user named
  std::string path = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  return report(parse_message(app, *command, error) + "; see " + path + " --help", kUserFault);
}

void build(CLI::App& app, Program& program) {
  app.name("stof");
  app.set_version_flag("--version", "stof " + std::string(stof::version()));
  app.require_subcommand(1);
  app.fallthrough();
  app.set_help_flag("-h,--help", "Print help, with examples, and exit");
  app.add_flag("-q,--quiet", program.quiet, "No progress bars");
  app.footer(examples({"stof run \"sparse attention\" \"masked transformers\"",
                       "stof mask show \"causal & window(3,0)\" --seq 16", "stof doctor",
                       "stof <command> --help"}));
  add_run_command(app, program);
  add_mask_command(app, program);
  add_bench_command(app, program);
  add_tune_command(app, program);
  add_explain_command(app, program);
  add_calibrate_command(app, program);
  add_doctor_command(app, program);
  add_cache_command(app, program);
  add_simulate_command(app, program);
  add_demo_command(app, program);
  add_completion_command(app, program);
}

/// An option's value that is empty, as an unset variable of a script is, is no value.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0 && !option->get_positional())
      option->check([](const std::string& value) {
        return value.empty() ? std::string("expected a value, got \"\"") : std::string();
      });
  for (CLI::App* command : app.get_subcommands({})) refuse_empty_values(*command);
}

int run(int argc, char** argv) {
  CLI::App app("Fast Transformers with masked (sparse) attention.");
  Program program;
  if (argc > 0) program.name = argv[0];
  try {
    build(app, program);
    refuse_empty_values(app);
    app.parse(argc, argv);
    flush_output();
    return 0;
  } catch (const CLI::CallForHelp&) {
    write_output(app.help());
  } catch (const CLI::CallForVersion& version) {
    print_out("{}\n", version.what());
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  }
  flush_output();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_descriptors();
  install_signal_handlers();
  try {
    return run(argc, argv);
  } catch (const stof::Error& error) {
    return report(error.what(), error.is_user_fault() ? kUserFault : kWorldFault);
  } catch (const std::bad_alloc&) {
    return report("out of memory; try a smaller --seq, --batch or file", kWorldFault);
  } catch (const std::exception& error) {
    return report(std::string("unexpected: ") + error.what(), kWorldFault);
  }
}
