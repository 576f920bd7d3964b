#include "backend/cuda/attention/candidates.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "backend/cuda/attention/cost_model.h"
#include "mask/permute.h"

namespace stof::cuda {
namespace {

using codegen::KernelFamily;
using mask::BlockMask;
using mask::Mask;
using mask::ScoreShape;

/// The copy engine's boxes must lie in one residue or hold whole ones. A kernel that computes with
/// key positions counts them on from a tile's first key, so there key tiles must lie in one.
bool tiles_fit(const AttentionProblem& problem, std::int64_t step,
               const codegen::AttentionConfig& config) {
  const auto fits = [](std::int64_t residue_rows, std::int64_t tile) {
    return residue_rows % tile == 0 || tile % residue_rows == 0;
  };
  const std::int64_t keys = problem.seq_kv / step;
  if (step == 1) return true;
  if (config.needs_keys() && keys % config.tile_kv != 0) return false;
  return config.family != KernelFamily::kSm90 ||
         (fits(problem.seq_q / step, 64) && fits(keys, config.tile_kv));
}

double predicted(const AttentionProblem& problem, const BlockMask& blocks,
                 const codegen::AttentionConfig& config, const KernelTarget& target) {
  return predict_us(make_workload(problem, blocks, config, target), unit_costs(config, target));
}

std::vector<Pass> passes_for(KernelFamily family, const AttentionProblem& problem,
                             const std::shared_ptr<const BlockMask>& blocks, std::int64_t step,
                             const KernelTarget& target) {
  const bool hopper = family == KernelFamily::kSm90;
  const bool shared_heads = blocks->head_extent() == 1;
  std::vector<Pass> passes;
  // Configurations share tile shapes, and counting takes longer than all the rest.
  std::map<std::pair<int, int>, std::vector<std::vector<TileCounts>>> counts;
  const auto pattern = [&](std::int64_t b, std::int64_t h) { return blocks->pattern_index(b, h); };
  for (const auto& config :
       hopper ? sm90_configs(problem, shared_heads) : sm80_configs(problem, shared_heads, target)) {
    if (!tiles_fit(problem, step, config)) continue;
    const auto [tiles, is_new] = counts.try_emplace({config.query_rows(), config.tile_kv});
    if (is_new) tiles->second = count_tiles(*blocks, config.query_rows(), config.tile_kv);
    const Workload work = make_workload(problem, tiles->second, pattern, config, target);
    passes.push_back({config, blocks, step, predict_us(work, unit_costs(config, target))});
  }
  return passes;
}

/// A merging pass holds the stored rows beside what every pass holds; with two slabs a warp all of
/// it twice.
bool can_merge(const codegen::AttentionConfig& config) {
  if (config.bias || config.position_bias || config.score_mod) return false;
  if (config.family == KernelFamily::kSm80)
    return config.threads() * config.blocks_per_sm <= 256 && config.tile_kv <= 64 &&
           config.warp_slabs * config.head_dim_v <= 128;
  const int others = config.alibi ? 50 : 30, stored = config.head_dim_v / 4;
  return sm90_held_registers(config) + stored + others <= config.consumer_registers;
}

const Pass& cheapest(const std::vector<Pass>& passes) {
  return *std::min_element(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) {
    return a.predicted_us < b.predicted_us;
  });
}

/// The mask in the orders and parts that may pay, the same for every family.
struct MaskViews {
  struct View {
    std::shared_ptr<const BlockMask> blocks;
    std::int64_t step = 1;
  };
  std::vector<View> whole;  ///< natural order, then residue orders
  std::vector<View> parts;  ///< near and far part of a strided mask, or none
};

ScoreShape shape_of(const AttentionProblem& problem) {
  return {problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
}

MaskViews views_of(const AttentionProblem& problem, const Mask& bound) {
  const ScoreShape shape = shape_of(problem);
  const auto blocks_in_order = [&](const Mask& part, std::int64_t step) {
    const Mask ordered = step == 1 ? part : mask::permuted(part, shape, step);
    return MaskViews::View{
        std::make_shared<BlockMask>(build_block_mask(ordered, shape, problem.alignment)), step};
  };
  MaskViews views;
  views.whole.push_back(blocks_in_order(bound, 1));
  for (const std::int64_t step : mask::permutation_candidates(bound, shape))
    views.whole.push_back(blocks_in_order(bound, step));
  const auto parts = mask::split_strided(bound);
  if (!parts.empty() && shape.seq_q % parts[1].step == 0 && shape.seq_kv % parts[1].step == 0) {
    views.parts.push_back(blocks_in_order(parts[0].mask, 1));
    views.parts.push_back(blocks_in_order(parts[1].mask, parts[1].step));
  }
  return views;
}

/// The options that a merging pass has no registers for; "" where there are none.
std::string held_options(const AttentionProblem& problem) {
  return fmt::format("{}{}{}", problem.bias ? " bias" : "",
                     problem.position_bias.num_buckets > 0 ? " position_bias" : "",
                     problem.score_mod.empty() ? "" : " score_mod");
}

/// Those that have to know the tokens of keys, which grid order does not.
std::string token_options(const AttentionProblem& problem) {
  return (problem.alibi ? " alibi" : "") + held_options(problem);
}

/// The dimensions of a neighbourhood in more than one, for a kernel that takes grid order.
std::optional<mask::GridAxes> grid_of(const AttentionProblem& problem, const Mask& bound,
                                      const KernelTarget& target) {
  if (!infeasible(KernelFamily::kSm90, problem, target).empty() || problem.seq_q != problem.seq_kv)
    return std::nullopt;
  auto axes = mask::neighbourhood_axes(bound, problem.seq_q);
  if (axes && (*axes)[0].extent() == 1 && (*axes)[1].extent() == 1) axes.reset();
  return axes;
}

/// Grid order: an entry of the batch a launch.
std::vector<Candidate> grid_candidates(const AttentionProblem& problem, const Mask& bound,
                                       const KernelTarget& target) {
  std::vector<Candidate> candidates;
  const auto axes = grid_of(problem, bound, target);
  if (!axes || !token_options(problem).empty()) return candidates;
  AttentionProblem entry = problem;
  entry.batch = 1;
  plan::GridTiler tiler(*axes);
  for (codegen::AttentionConfig config : sm90_configs(problem, /*shared_heads=*/true)) {
    const auto order = tiler.best(config.query_rows(), config.tile_kv);
    if (!order) continue;
    config.grid_order = true;
    std::vector<std::vector<TileCounts>> counts(1);
    for (const plan::GridTileCount& count : count_tiles(*order))
      counts[0].push_back({count.full, count.partial});
    const Workload work = make_workload(
        entry, counts, [](std::int64_t, std::int64_t) { return 0; }, config, target);
    const double us =
        static_cast<double>(problem.batch) * predict_us(work, unit_costs(config, target));
    candidates.push_back({{{config, nullptr, 1, us, order}}, "", {}});
  }
  return candidates;
}

/// Stable, cheapest prediction first.
void sort_by_prediction(std::vector<Candidate>* candidates) {
  std::stable_sort(
      candidates->begin(), candidates->end(),
      [](const Candidate& a, const Candidate& b) { return a.predicted_us() < b.predicted_us(); });
}

std::vector<Candidate> family_candidates(KernelFamily family, const AttentionProblem& problem,
                                         const MaskViews& views, const KernelTarget& target) {
  std::vector<Candidate> candidates;
  for (const auto& view : views.whole)
    for (auto& pass : passes_for(family, problem, view.blocks, view.step, target))
      candidates.push_back({{std::move(pass)}, "", {}});
  if (!views.parts.empty()) {
    const auto& near = views.parts[0];
    const auto& far = views.parts[1];
    const auto first = passes_for(family, problem, near.blocks, near.step, target);
    for (const Pass& merging : passes_for(family, problem, far.blocks, far.step, target)) {
      if (first.empty() || !can_merge(merging.config)) continue;
      Candidate both{{cheapest(first), merging}, "", {}};
      both.passes[0].config.sink = false;  // joins once, when a row has seen all it sees
      Pass& last = both.passes[1];
      last.config.merge = true;
      last.predicted_us = predicted(problem, *last.blocks, last.config, target);
      candidates.push_back(std::move(both));
    }
  }
  sort_by_prediction(&candidates);
  return candidates;
}

/// Beside the candidates the model picks among, in their order.
void add_rowwise(const AttentionProblem& problem, const MaskViews& views,
                 const KernelTarget& target, std::vector<Candidate>* candidates) {
  const double best = candidates->empty() ? 1e300 : candidates->front().predicted_us();
  for (RowwisePass& pass : rowwise_passes(problem, *views.whole[0].blocks, target, best)) {
    const auto at = std::find_if(candidates->begin(), candidates->end(), [&](const Candidate& c) {
      return !c.by_name_only.empty() || c.predicted_us() > pass.predicted_us;
    });
    candidates->insert(at, Candidate{{}, "", std::move(pass)});
  }
}

}  // namespace

double Candidate::predicted_us() const {
  double sum = rowwise ? rowwise->predicted_us : 0;
  for (const Pass& pass : passes) sum += pass.predicted_us;
  return sum;
}

std::string Candidate::name() const {
  if (rowwise) return rowwise->config.name();
  std::string text;
  for (const Pass& pass : passes) {
    if (!text.empty()) text += " + ";
    text += pass.config.name();
    if (pass.grid) text.append(" ").append(pass.grid->name());
    if (pass.step > 1) text += " step" + std::to_string(pass.step);
  }
  return text;
}

std::vector<Candidate> enumerate_candidates(const AttentionProblem& problem, const Mask& mask,
                                            const KernelTarget& target, bool by_name) {
  const Mask bound = mask.bind(shape_of(problem), problem.alignment);
  // A long grid's natural order takes longer to plan than many calls to run, and touches more
  // tiles.
  constexpr std::int64_t kLongGrid = 8192;
  std::vector<Candidate> candidates = grid_candidates(problem, bound, target);
  sort_by_prediction(&candidates);
  const bool grid_alone = !candidates.empty() && problem.seq_q >= kLongGrid;
  if (grid_alone && !by_name) return candidates;
  const MaskViews views = views_of(problem, bound);
  std::string by_name_only =
      grid_alone ? "the Hopper kernel in grid order touches fewer tiles" : "";
  for (const KernelFamily family : {KernelFamily::kSm90, KernelFamily::kSm80}) {
    if (!infeasible(family, problem, target).empty()) continue;
    if (!by_name_only.empty() && !by_name) break;
    for (Candidate& candidate : family_candidates(family, problem, views, target)) {
      candidate.by_name_only = by_name_only;
      candidates.push_back(std::move(candidate));
    }
    if (by_name_only.empty() && !candidates.empty()) {
      sort_by_prediction(&candidates);
      by_name_only = "the Hopper kernel is faster";
    }
  }
  if (!grid_alone) add_rowwise(problem, views, target, &candidates);
  return candidates;
}

std::vector<InfeasibleFamily> infeasible_families(const AttentionProblem& problem, const Mask& mask,
                                                  const KernelTarget& target) {
  std::vector<InfeasibleFamily> families;
  for (const auto& [family, name] :
       {std::pair{KernelFamily::kSm90, "sm90"}, std::pair{KernelFamily::kSm80, "sm80"}})
    if (std::string reason = infeasible(family, problem, target); !reason.empty())
      families.push_back({name, std::move(reason)});
  if (std::string reason = rowwise_infeasible(problem, target); !reason.empty())
    families.push_back({"rowwise", std::move(reason)});
  const Mask bound = mask.bind(shape_of(problem), problem.alignment);
  if (const std::string options = token_options(problem);
      !options.empty() && grid_of(problem, bound, target))
    families.push_back({"sm90 in grid order", "has no" + options});
  if (const std::string options = held_options(problem);
      !options.empty() && !mask::split_strided(bound).empty())
    families.push_back({"two passes", "merging has no" + options});
  return families;
}

}  // namespace stof::cuda
