// stof calibrate: measures the GPU's unit costs, which the cost model then predicts with.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "backend/cuda/attention/calibrate.h"
#include "commands.h"
#include "core/file.h"
#include "options.h"
#include "output.h"
#include "progress.h"

namespace stof::cli {
namespace {

struct CalibrateOptions {
  std::vector<std::int64_t> head_dims = {64, 128};
  std::string output;
  bool json = false;
};

void calibrate(const CalibrateOptions& options, const Program& program) {
  if (!options.output.empty()) require_writable("--output", options.output);
  const cuda::Device device = cuda::Device::open();
  std::unique_ptr<ProgressBar> bar;
  const cuda::Calibration measured =
      cuda::calibrate(device, options.head_dims, [&](std::int64_t done, std::int64_t all) {
        if (bar == nullptr) bar = std::make_unique<ProgressBar>("measuring", all, program.quiet);
        bar->update(done);
      });
  const std::string path =
      options.output.empty() ? cuda::Calibration::default_path(measured.gpu) : options.output;
  if (options.output.empty())
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, measured.to_json());
  if (options.json) {
    print_out("{}", measured.to_json());
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "full tile", "partial tile", "query tile", "launch"}};
  const auto ns = [](double value) { return fmt::format("{:.0f} ns", value); };
  for (const cuda::CalibratedKernel& kernel : measured.kernels)
    rows.push_back({kernel.kernel, ns(kernel.costs.full_ns), ns(kernel.costs.partial_ns),
                    ns(kernel.costs.item_ns), ns(kernel.costs.launch_ns)});
  print_out("{}\n{}", measured.gpu, format_table(rows));
  print_out("\nwritten to {}{}\n", path,
            options.output.empty() ? ", where plans for this GPU look first" : "");
}

}  // namespace

void add_calibrate_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App& command = *app.add_subcommand(
      "calibrate", "Measure attention kernels on this GPU, so that plans pick well on it");
  command.fallthrough();
  command
      .add_option("--head-dim", options->head_dims,
                  "Widths of a head, separated by commas (default 64,128)")
      ->delimiter(',')
      ->transform(whole_number(8, 512));
  command.add_option("--output", options->output,
                     "Write here instead of the cache folder, where plans find it");
  command.add_flag("--json", options->json, "Print the profile instead of a table");
  command.footer(examples({"stof calibrate", "stof calibrate --head-dim 64 --output here.json"}));
  command.callback([options, &program] { calibrate(*options, program); });
}

}  // namespace stof::cli
