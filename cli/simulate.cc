// stof simulate: what tensor cores would take for pruned attention, in cycles and energy.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "commands.h"
#include "core/check.h"
#include "core/file.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "stof/npy.h"
#include "stof/prune.h"
#include "stof/simulate.h"

namespace stof::cli {
namespace {

using simulate::Comparison;
using simulate::LayerShape;
using simulate::Machine;
using simulate::Pattern;
using simulate::Simulation;

struct SimulateOptions {
  std::string mask = "all", pattern, prune, nm, queries, keys;
  std::int64_t seq = 0, seq_kv = 0, group = 0, layer = -1;
  std::string alignment = "top_left", model = "bert-base", operands = "shared";
  std::vector<std::string> sets;
  std::uint64_t seed = 0;
  bool json = false, sensitivity = false, yardstick = false, constants = false;
  std::string svg;
};

LayerShape layer_of(const std::string& name) {
  for (const LayerShape& shape : simulate::model_shapes())
    if (shape.name == name) return shape;
  throw_error(ErrorCode::kInternal, "model shape {} is not there", name);
}

Machine machine_of(const SimulateOptions& options) {
  Machine machine;
  if (options.operands == "registers") machine.operands = simulate::Operands::kRegisters;
  for (const std::string& assignment : options.sets) simulate::set_constant(machine, assignment);
  return machine;
}

mask::BlockMask read_mask(const SimulateOptions& options, const std::string& source,
                          const LayerShape& layer) {
  MaskArguments arguments;
  arguments.source = source;
  arguments.seq = options.seq;
  arguments.seq_kv = options.seq_kv;
  arguments.layer = options.layer;
  arguments.alignment = options.alignment;
  const MaskSource read = load_mask_source(arguments);
  STOF_CHECK(read.shape.num_heads == 1 || read.shape.num_heads == layer.num_heads, kInvalidArgument,
             "{}: expected a mask of 1 or {} heads ({}), got {}", source, layer.num_heads,
             layer.name, read.shape.num_heads);
  return to_block_mask(read);
}

/// Of the first batch entry.
std::vector<Pattern> patterns_of(const mask::BlockMask& mask, std::int64_t group) {
  std::vector<Pattern> patterns;
  for (std::int64_t h = 0; h < mask.head_extent(); ++h)
    patterns.push_back(simulate::pattern_of(mask, 0, h, group));
  return patterns;
}

/// Float32 [1, heads, rows, head_dim], from a file of [heads, rows, head_dim] or drawn.
Tensor operand(const std::string& option, const std::string& file, std::int64_t heads,
               std::int64_t rows, std::int64_t dim, std::uint64_t seed) {
  Tensor tensor(DType::kFloat32, {1, heads, rows, dim});
  if (file.empty()) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : tensor.as<float>()) x = normal(random);
    return tensor;
  }
  const Tensor read = load_npy(file);
  const Dims expected{heads, rows, dim};
  STOF_CHECK(read.shape() == expected, kInvalidArgument, "{}: {}: expected {}, got {}", option,
             file, expected.to_string(), read.shape().to_string());
  const Tensor converted = Tensor::converted(read.view(), DType::kFloat32);
  std::ranges::copy(converted.as<float>(), tensor.as<float>().begin());
  return tensor;
}

mask::BlockMask pruned_by(const SimulateOptions& options, const mask::Pruner& pruner,
                          const LayerShape& layer, const mask::ScoreShape& shape) {
  const Tensor q = operand("--queries", options.queries, layer.num_heads, shape.seq_q,
                           layer.head_dim, options.seed);
  const Tensor k = operand("--keys", options.keys, layer.num_heads_kv, shape.seq_kv, layer.head_dim,
                           options.seed + 1);
  mask::PruneInput input;
  input.q = q.view();
  input.k = k.view();
  MaskArguments base;
  base.source = options.mask;
  base.layer = options.layer;
  input.base = load_mask_expression(base);
  input.alignment = options.alignment == "bottom_right" ? mask::Alignment::kBottomRight
                                                        : mask::Alignment::kTopLeft;
  const mask::PrunedMask pruned = mask::prune(input, pruner);
  return mask::build_block_mask(pruned.mask, pruned.shape, pruned.alignment);
}

std::pair<std::int64_t, std::int64_t> parse_nm(const std::string& text) {
  const mask::PruneSettings settings = mask::Pruner::parse("nm(" + text + ")").heads.front();
  return {settings.kept_of_group(), settings.group};
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string times(double factor) { return fmt::format("{:.3f}", factor); }

void print_simulation(const Simulation& s) {
  print_out("layer    {}: {} heads ({} of keys) of {}, {} queries, {} keys\n", s.layer.name,
            s.layer.num_heads, s.layer.num_heads_kv, s.layer.head_dim, s.seq_q, s.seq_kv);
  print_out("pruned   {} of the pairs are kept; groups of {}\n", percent(s.kept_fraction), s.group);
  print_out("base     dense, not pruned: {:.0f} cycles, {:.4g} uJ, attention {} of the energy\n\n",
            s.base.cycles, s.base.total_pj * 1e-6,
            percent(s.base.attention.total_pj() / s.base.total_pj));
  std::vector<std::vector<std::string>> rows = {{"mode", "cycles", "speed-up", "of attention",
                                                 "utilisation", "energy saved", "of attention",
                                                 "of tensor cores"}};
  for (const Comparison& c : s.modes)
    rows.push_back({to_string(c.mode), fmt::format("{:.0f}", c.cost.cycles), times(c.speed_up),
                    times(c.attention_speed_up), percent(c.cost.attention.utilisation()),
                    percent(c.saving), percent(c.attention_saving), percent(c.tensor_saving)});
  print_out("{}\n", format_table(rows));
  rows = {{"attention, uJ", "dot products", "registers", "accumulators", "shared", "metadata",
           "softmax", "L2", "DRAM", "static"}};
  const auto add = [&](const std::string& name, const simulate::Cost& cost) {
    std::vector<std::string> row = {name};
    for (const double pj :
         {cost.dot_products_pj, cost.registers_pj, cost.accumulators_pj, cost.shared_pj,
          cost.metadata_pj, cost.softmax_pj, cost.l2_pj, cost.dram_pj, cost.static_pj})
      row.push_back(fmt::format("{:.4g}", pj * 1e-6));
    rows.push_back(row);
  };
  add("base", s.base.attention);
  for (const Comparison& c : s.modes) add(to_string(c.mode), c.cost.attention);
  print_out("{}", format_table(rows));
}

void print_sensitivities(const std::vector<simulate::Sensitivity>& all, bool json) {
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const simulate::Sensitivity& s : all)
      list.push_back({{"constant", s.constant->name},
                      {"speed_up", s.speed_up},
                      {"energy_saving", s.saving},
                      {"tensor_core_energy_saving", s.tensor_saving}});
    print_out("{}\n", list.dump());
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"\nextension, constant x 0.9 .. 1.1", "speed-up", "energy saved", "of tensor cores"}};
  for (const simulate::Sensitivity& s : all)
    rows.push_back({s.constant->name, times(s.speed_up[0]) + " .. " + times(s.speed_up[1]),
                    percent(s.saving[0]) + " .. " + percent(s.saving[1]),
                    percent(s.tensor_saving[0]) + " .. " + percent(s.tensor_saving[1])});
  print_out("{}", format_table(rows));
}

void print_constants(const SimulateOptions& options) {
  const Machine machine = machine_of(options);
  for (const simulate::Constant& constant : simulate::constants())
    print_out("{} = {} {}\n    {}{}\n", constant.name, machine.*constant.value, constant.unit,
              constant.is_estimate ? "estimate: " : "", constant.source);
}

/// Which N of 16 gives the abstract's averages, for each model and length.
void run_yardstick(const SimulateOptions& options, const Program& program) {
  constexpr double kSpeedUp = 1.087, kSaving = 0.543;
  constexpr std::int64_t kGroup = 16;
  const Machine machine = machine_of(options);
  std::vector<std::int64_t> lengths = {256, 512, 1024, 2048, 4096, 8192};
  if (options.seq > 0) lengths = {options.seq};
  std::vector<std::vector<std::string>> rows = {{"model", "length", "54.3 % saved", "speed-up then",
                                                 "saved of layer", "8.7 % faster",
                                                 "tensor cores save then"}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  ProgressBar bar("simulating", std::ssize(lengths) * kGroup, program.quiet);
  std::int64_t done = 0;
  for (const std::int64_t length : lengths) {
    SimulateOptions at = options;
    at.seq = length;
    at.seq_kv = 0;
    const LayerShape any = layer_of("attention");
    const mask::BlockMask base = read_mask(at, options.mask, any);
    std::vector<std::vector<Pattern>> by_n;
    for (std::int64_t n = 1; n <= kGroup; ++n) {
      by_n.push_back({simulate::uniform_pattern(base, n, kGroup)});
      bar.update(++done);
    }
    for (const LayerShape& layer : simulate::model_shapes()) {
      if (layer.hidden == 0) continue;
      const Comparison *saves = nullptr, *speeds = nullptr;
      std::vector<Simulation> all;
      all.reserve(by_n.size());
      std::int64_t saves_n = 0, speeds_n = 0;
      for (std::int64_t n = 1; n <= kGroup; ++n) {
        all.push_back(
            simulate::simulate(machine, layer, by_n[static_cast<std::size_t>(n - 1)], by_n.back()));
        const Comparison& extension = all.back().modes.back();
        if (extension.tensor_saving >= kSaving) saves = &extension, saves_n = n;
        if (extension.speed_up >= kSpeedUp) speeds = &extension, speeds_n = n;
      }
      rows.push_back({layer.name, fmt::format("{}", length),
                      saves ? fmt::format("{}/16", saves_n) : "-",
                      saves ? times(saves->speed_up) : "-", saves ? percent(saves->saving) : "-",
                      speeds ? fmt::format("{}/16", speeds_n) : "-",
                      speeds ? percent(speeds->tensor_saving) : "-"});
      nlohmann::ordered_json entry = {{"model", layer.name}, {"length", length}};
      if (saves)
        entry["saving_54.3"] = {{"n_of_16", saves_n},
                                {"speed_up", saves->speed_up},
                                {"attention_speed_up", saves->attention_speed_up},
                                {"energy_saving", saves->saving},
                                {"attention_energy_saving", saves->attention_saving},
                                {"tensor_core_energy_saving", saves->tensor_saving}};
      if (speeds)
        entry["speed_up_8.7"] = {{"n_of_16", speeds_n},
                                 {"speed_up", speeds->speed_up},
                                 {"energy_saving", speeds->saving},
                                 {"attention_energy_saving", speeds->attention_saving},
                                 {"tensor_core_energy_saving", speeds->tensor_saving}};
      list.push_back(entry);
    }
  }
  if (options.json)
    print_out("{}\n", list.dump());
  else
    print_out("{}", format_table(rows));
}

void run_simulate(const SimulateOptions& options, const CLI::App& command, const Program& program) {
  if (options.constants) {
    print_constants(options);
    return;
  }
  if (options.yardstick) {
    for (const char* name : {"--pattern", "--prune", "--nm", "--model", "--svg", "--sensitivity",
                             "--group", "--seq-kv"})
      STOF_CHECK(command.count(name) == 0, kInvalidArgument, "{}: expected none beside --yardstick",
                 name);
    run_yardstick(options, program);
    return;
  }
  const std::size_t sources =
      command.count("--pattern") + command.count("--prune") + command.count("--nm");
  STOF_CHECK(sources == 1, kInvalidArgument,
             "expected one of --nm, --prune and --pattern, got {} of them", sources);
  STOF_CHECK(!options.prune.empty() || (options.queries.empty() && options.keys.empty()),
             kInvalidArgument, "--queries, --keys: expected --prune beside them");
  if (!options.svg.empty()) require_writable("--svg", options.svg);
  const Machine machine = machine_of(options);
  const LayerShape layer = layer_of(options.model);
  const mask::BlockMask base = read_mask(options, options.mask, layer);
  std::int64_t group = options.group > 0 ? options.group : 4;
  std::vector<Pattern> pruned;
  if (!options.nm.empty()) {
    const auto [n, m] = parse_nm(options.nm);
    STOF_CHECK(options.group == 0 || options.group == m, kInvalidArgument,
               "--group: expected {} as in --nm, or none, got {}", m, options.group);
    group = m;
    pruned = {simulate::uniform_pattern(base, n, group)};
  } else if (!options.prune.empty()) {
    const mask::Pruner pruner = mask::Pruner::parse(options.prune);
    if (options.group == 0 && pruner.heads.front().method == mask::PruneMethod::kNm)
      group = pruner.heads.front().group;
    pruned = patterns_of(pruned_by(options, pruner, layer, base.shape()), group);
  } else {
    pruned = patterns_of(read_mask(options, options.pattern, layer), group);
  }
  const std::vector<Pattern> before = patterns_of(base, group);
  const Simulation simulation = simulate::simulate(machine, layer, pruned, before);
  if (!options.svg.empty()) write_file(options.svg, simulation.to_svg());
  if (options.sensitivity && options.json) {
    print_sensitivities(simulate::sensitivities(machine, layer, pruned, before), true);
    return;
  }
  if (options.json)
    print_out("{}\n", simulation.to_json());
  else
    print_simulation(simulation);
  if (options.sensitivity)
    print_sensitivities(simulate::sensitivities(machine, layer, pruned, before), false);
}

}  // namespace

void add_simulate_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App& command = *app.add_subcommand(
      "simulate", "Model tensor cores on pruned attention: dense, 2:4, and N:M in both products");
  command.fallthrough();
  std::vector<std::string> models;
  for (const LayerShape& shape : simulate::model_shapes()) models.push_back(shape.name);
  command.add_option("--model", options->model, "Shape of the layer; attention: nothing around it")
      ->check(one_of(models))
      ->capture_default_str();
  command.add_option("--seq", options->seq, "Queries")->transform(whole_number(1, 1 << 17));
  command.add_option("--seq-kv", options->seq_kv, "Keys (default: as many)")
      ->transform(whole_number(1, 1 << 17));
  command.add_option("--mask", options->mask, "What is not pruned: a mask expression or file")
      ->capture_default_str();
  command.add_option("--layer", options->layer, "Of a file with masks of layers: whose")
      ->transform(whole_number(0, 1 << 20));
  command.add_option("--align", options->alignment, "Where query 0 stands")
      ->check(one_of({"top_left", "bottom_right"}))
      ->capture_default_str();
  command.add_option("--nm", options->nm, "Keep n of each m visible keys: \"1,4\"");
  command.add_option("--prune", options->prune, "Keep what a pruner chooses: \"nm(2,4)\"");
  command.add_option("--queries", options->queries,
                     "With --prune: float32 .npy [heads, queries, head_dim] (default: drawn)");
  command.add_option("--keys", options->keys, "With --prune: the same of the heads of keys");
  command.add_option("--seed", options->seed, "Of drawn queries and keys")->capture_default_str();
  command.add_option("--pattern", options->pattern,
                     "Keep what a mask shows: an expression or file, also a block mask's");
  command.add_option("--group", options->group, "M of the extension (default: the pruner's, or 4)")
      ->transform(whole_number(2, 32));
  command
      .add_option("--operands", options->operands,
                  "Where B comes from: shared memory (wgmma) or registers (mma)")
      ->check(one_of({"shared", "registers"}))
      ->capture_default_str();
  command.add_option("--set", options->sets, "Change a constant: \"mac_pj=0.4\"; may be repeated")
      ->expected(1)
      ->take_all();
  command.add_flag("--constants", options->constants, "List constants with their sources");
  command.add_flag("--sensitivity", options->sensitivity,
                   "Also move each constant by a tenth, down and up");
  command.add_flag(
      "--yardstick", options->yardstick,
      "For each model and length (or --seq): how much may be kept, of each 16, for 8.7 % of "
      "speed-up and for 54.3 % of tensor cores' energy");
  command.add_option("--svg", options->svg, "Also draw time and energy");
  command.add_flag("--json", options->json, "One JSON document");
  command.footer(
      examples({"stof simulate --model bert-base --seq 4096 --nm 1,4",
                "stof simulate --seq 1024 --mask causal --prune \"nm(2,8)\" --svg energy.svg",
                "stof simulate --seq 512 --nm 2,4 --operands registers --sensitivity",
                "stof simulate --yardstick", "stof simulate --constants"}));
  command.callback([options, &command, &program] { run_simulate(*options, command, program); });
}

}  // namespace stof::cli
