// stof doctor: what this build and this machine offer, and whether the model is there.

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "stof/gpu_info.h"
#include "stof/system_info.h"

namespace stof::cli {
namespace {

void print_findings(const SystemInfo& info, const ModelFolderState& model) {
  const CpuInfo& cpu = info.cpu;
  std::vector<std::string> libraries;
  for (const LibraryInfo& library : info.libraries)
    libraries.push_back(library.version.empty() ? library.name
                                                : library.name + " " + library.version);
  print_out("stof       {} ({}, {})\n", info.stof_version, info.compiler, info.build_type);
  print_out("CPU        {}, {} logical cores\n", cpu.model, cpu.num_logical);
  print_out("features   {}\n", cpu.features.empty()
                                   ? "none that stof uses"
                                   : fmt::format("{}", fmt::join(cpu.features, " ")));
  print_out("kernels    attention: {}; dense products: oneDNN\n", cpu.kernel_level);
  print_out("threads    {}\n", cpu.num_threads);
  print_out("memory     {}\n", format_bytes(static_cast<double>(cpu.memory_bytes)));
  print_out("GPU        {}\n", gpu_info().describe());
  print_out("libraries  {}\n", fmt::join(libraries, ", "));
  print_out("cache      {}\n", info.cache_folder);
  print_out("model      {}: {}\n", model.folder, model.problem.empty() ? "ready" : model.problem);
}

void print_findings_json(const SystemInfo& info, const ModelFolderState& model) {
  auto json = nlohmann::ordered_json::parse(info.to_json());
  json["gpu"] = nlohmann::ordered_json::parse(gpu_info().to_json());
  json["model"] = {
      {"folder", model.folder}, {"ready", model.problem.empty()}, {"problem", model.problem}};
  print_out("{}\n", json.dump());
}

}  // namespace

void add_doctor_command(CLI::App& app, const Program&) {
  auto json = std::make_shared<bool>(false);
  CLI::App& doctor = *app.add_subcommand("doctor", "Report what was found on this machine");
  doctor.fallthrough();
  doctor.add_flag("--json", *json, "One JSON document");
  doctor.footer(examples({"stof doctor", "stof doctor --json"}));
  doctor.callback([json] {
    const SystemInfo info = system_info();
    const ModelFolderState model = inspect_model_folder(default_model_folder());
    if (*json)
      print_findings_json(info, model);
    else
      print_findings(info, model);
  });
}

}  // namespace stof::cli
