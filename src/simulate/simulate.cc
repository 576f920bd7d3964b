// A layer in every mode, against the dense machine without pruning.

#include "stof/simulate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/check.h"

namespace stof::simulate {
namespace {

using Json = nlohmann::ordered_json;

void check_patterns(const char* name, const LayerShape& layer,
                    const std::vector<Pattern>& patterns) {
  STOF_CHECK(patterns.size() == 1 || std::ssize(patterns) == layer.num_heads, kInvalidArgument,
             "{}: expected 1 pattern or one for each of {} heads, got {}", name, layer.num_heads,
             patterns.size());
  for (const Pattern& pattern : patterns)
    STOF_CHECK(pattern.seq_q == patterns.front().seq_q &&
                   pattern.seq_kv == patterns.front().seq_kv &&
                   pattern.group == patterns.front().group,
               kInvalidArgument, "{}: expected patterns of the same lengths and group", name);
}

std::int64_t pairs_of(const std::vector<Pattern>& patterns) {
  std::int64_t pairs = 0;
  for (const Pattern& pattern : patterns) pairs += pattern.visible_pairs();
  return pairs;
}

double saved(double now, double before) { return before == 0 ? 0 : 1 - now / before; }

Json json_of(const Cost& cost) {
  return {{"sm_cycles", cost.cycles},
          {"longest_row_cycles", cost.longest_cycles},
          {"tensor_cycles", cost.tensor_cycles},
          {"utilisation", cost.utilisation()},
          {"macs", cost.macs},
          {"energy_pj",
           {{"dot_products", cost.dot_products_pj},
            {"registers", cost.registers_pj},
            {"accumulators", cost.accumulators_pj},
            {"shared_memory", cost.shared_pj},
            {"metadata", cost.metadata_pj},
            {"softmax", cost.softmax_pj},
            {"l2", cost.l2_pj},
            {"dram", cost.dram_pj},
            {"static", cost.static_pj},
            {"total", cost.total_pj()}}}};
}

Json json_of(const LayerCost& cost) {
  return {{"cycles", cost.cycles},
          {"energy_pj", cost.total_pj},
          {"attention", json_of(cost.attention)},
          {"products", json_of(cost.products)}};
}

}  // namespace

LayerCost layer_cost(const Machine& machine, const LayerShape& layer,
                     const std::vector<Pattern>& patterns, Mode mode) {
  check_patterns("patterns", layer, patterns);
  LayerCost cost;
  Cost head;
  for (std::int64_t h = 0; h < layer.num_heads; ++h) {
    // One pattern of all heads is worked out once.
    const auto own = patterns.size() == 1 ? 0 : static_cast<std::size_t>(h);
    if (h == 0 || own > 0) head = attention_cost(machine, patterns[own], layer.head_dim, mode);
    cost.attention += head;
  }
  cost.products = products_cost(machine, layer, patterns.front().seq_q);
  cost.cycles = std::max(cost.attention.cycles / machine.num_sms, cost.attention.longest_cycles) +
                cost.products.cycles / machine.num_sms;
  cost.total_pj = cost.attention.total_pj() + cost.products.total_pj();
  return cost;
}

Simulation simulate(const Machine& machine, const LayerShape& layer,
                    const std::vector<Pattern>& pruned, const std::vector<Pattern>& base) {
  machine.validate();
  check_patterns("pruned", layer, pruned);
  check_patterns("base", layer, base);
  STOF_CHECK(
      pruned.front().seq_q == base.front().seq_q && pruned.front().seq_kv == base.front().seq_kv,
      kInvalidArgument, "base: expected the lengths of the pruned mask, {} x {}, got {} x {}",
      pruned.front().seq_q, pruned.front().seq_kv, base.front().seq_q, base.front().seq_kv);
  Simulation simulation;
  simulation.machine = machine;
  simulation.layer = layer;
  simulation.seq_q = pruned.front().seq_q;
  simulation.seq_kv = pruned.front().seq_kv;
  simulation.group = pruned.front().group;
  const std::int64_t all = pairs_of(base);
  if (all > 0)
    simulation.kept_fraction = static_cast<double>(pairs_of(pruned)) /
                               static_cast<double>(pruned.size()) *
                               static_cast<double>(base.size()) / static_cast<double>(all);
  simulation.base = layer_cost(machine, layer, base, Mode::kDense);
  const LayerCost& before = simulation.base;
  for (const Mode mode : {Mode::kDense, Mode::kSparse24, Mode::kExtension}) {
    Comparison c;
    c.mode = mode;
    c.cost = layer_cost(machine, layer, pruned, mode);
    const auto attention_cycles = [&](const LayerCost& cost) {
      return cost.cycles - cost.products.cycles / machine.num_sms;
    };
    c.speed_up = c.cost.cycles == 0 ? 1 : before.cycles / c.cost.cycles;
    c.attention_speed_up =
        attention_cycles(c.cost) == 0 ? 1 : attention_cycles(before) / attention_cycles(c.cost);
    c.saving = saved(c.cost.total_pj, before.total_pj);
    c.attention_saving = saved(c.cost.attention.total_pj(), before.attention.total_pj());
    c.tensor_saving = saved(c.cost.attention.tensor_pj(), before.attention.tensor_pj());
    simulation.modes.push_back(c);
  }
  return simulation;
}

std::vector<Sensitivity> sensitivities(const Machine& machine, const LayerShape& layer,
                                       const std::vector<Pattern>& pruned,
                                       const std::vector<Pattern>& base) {
  std::vector<Sensitivity> all;
  for (const Constant& constant : constants()) {
    Sensitivity sensitivity;
    sensitivity.constant = &constant;
    for (int side = 0; side < 2; ++side) {
      Machine changed = machine;
      double& value = changed.*constant.value;
      value *= side == 0 ? 0.9 : 1.1;
      if (constant.value == &Machine::overlap || constant.value == &Machine::gemm_utilisation)
        value = std::min(value, 1.0);
      const Simulation simulation = simulate(changed, layer, pruned, base);
      const Comparison& extension = simulation.modes.back();
      sensitivity.speed_up[side] = extension.speed_up;
      sensitivity.saving[side] = extension.saving;
      sensitivity.tensor_saving[side] = extension.tensor_saving;
    }
    all.push_back(sensitivity);
  }
  return all;
}

std::string Simulation::to_json() const {
  Json constants_json = Json::object();
  for (const Constant& constant : constants())
    constants_json[constant.name] = machine.*constant.value;
  Json all = Json::array();
  for (const Comparison& c : modes)
    all.push_back({{"mode", to_string(c.mode)},
                   {"speed_up", c.speed_up},
                   {"attention_speed_up", c.attention_speed_up},
                   {"energy_saving", c.saving},
                   {"attention_energy_saving", c.attention_saving},
                   {"tensor_core_energy_saving", c.tensor_saving},
                   {"cost", json_of(c.cost)}});
  return Json{{"layer",
               {{"name", layer.name},
                {"num_heads", layer.num_heads},
                {"num_heads_kv", layer.num_heads_kv},
                {"head_dim", layer.head_dim},
                {"hidden", layer.hidden},
                {"ffn", layer.ffn}}},
              {"seq_q", seq_q},
              {"seq_kv", seq_kv},
              {"group", group},
              {"kept_fraction", kept_fraction},
              {"operands", machine.operands == Operands::kShared ? "shared" : "registers"},
              {"constants", constants_json},
              {"base", json_of(base)},
              {"modes", all}}
      .dump();
}

}  // namespace stof::simulate
