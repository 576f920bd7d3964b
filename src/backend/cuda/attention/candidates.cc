#include "backend/cuda/attention/candidates.h"

#include <algorithm>

#include "backend/cuda/attention/configs.h"
#include "backend/cuda/attention/cost_model.h"
#include "mask/permute.h"

namespace stof::cuda {
namespace {

using mask::BlockMask;
using mask::Mask;
using mask::ScoreShape;

std::shared_ptr<const BlockMask> blocks_of(const Mask& bound, const ScoreShape& shape,
                                           mask::Alignment alignment) {
  return std::make_shared<BlockMask>(build_block_mask(bound, shape, alignment));
}

/// A tile must lie in one residue or hold whole ones.
bool tiles_fit(std::int64_t residue_rows, std::int64_t tile) {
  return residue_rows % tile == 0 || tile % residue_rows == 0;
}

std::vector<Pass> passes_for(const AttentionProblem& problem,
                             const std::shared_ptr<const BlockMask>& blocks, std::int64_t step,
                             int num_sms) {
  std::vector<Pass> passes;
  for (const auto& config : sm90_configs(problem, blocks->head_extent() == 1)) {
    if (step > 1 &&
        !(tiles_fit(problem.seq_q / step, 64) && tiles_fit(problem.seq_kv / step, config.tile_kv)))
      continue;
    passes.push_back(
        {config, blocks, step,
         predict_us(make_workload(problem, *blocks, config, num_sms), unit_costs(config))});
  }
  return passes;
}

/// The stored rows a merging pass holds beside its own: three warpgroups have 160 registers a
/// thread, and wide heads need them for the output.
bool can_merge(const codegen::AttentionConfig& config) {
  return config.warpgroups < 3 && config.head_dim_v <= 128;
}

const Pass& cheapest(const std::vector<Pass>& passes) {
  return *std::min_element(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) {
    return a.predicted_us < b.predicted_us;
  });
}

}  // namespace

double Candidate::predicted_us() const {
  double sum = 0;
  for (const Pass& pass : passes) sum += pass.predicted_us;
  return sum;
}

std::string Candidate::name() const {
  std::string text;
  for (const Pass& pass : passes) {
    if (!text.empty()) text += " + ";
    text += pass.config.name();
    if (pass.step > 1) text += " step" + std::to_string(pass.step);
  }
  return text;
}

std::vector<Candidate> enumerate_candidates(const AttentionProblem& problem, const Mask& mask,
                                            int num_sms) {
  const ScoreShape shape{problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
  const Mask bound = mask.bind(shape, problem.alignment);
  std::vector<Candidate> candidates;
  for (auto& pass : passes_for(problem, blocks_of(bound, shape, problem.alignment), 1, num_sms))
    candidates.push_back({{std::move(pass)}});
  for (const std::int64_t step : mask::permutation_candidates(bound, shape)) {
    const auto blocks = blocks_of(mask::permuted(bound, shape, step), shape, problem.alignment);
    for (auto& pass : passes_for(problem, blocks, step, num_sms))
      candidates.push_back({{std::move(pass)}});
  }
  const auto parts = mask::split_strided(bound);
  if (!parts.empty() && shape.seq_q % parts[1].step == 0 && shape.seq_kv % parts[1].step == 0) {
    const auto near =
        passes_for(problem, blocks_of(parts[0].mask, shape, problem.alignment), 1, num_sms);
    const auto far = passes_for(
        problem,
        blocks_of(mask::permuted(parts[1].mask, shape, parts[1].step), shape, problem.alignment),
        parts[1].step, num_sms);
    for (const Pass& merging : far) {
      if (near.empty() || !can_merge(merging.config)) continue;
      Candidate both{{cheapest(near), merging}};
      both.passes[1].config.merge = true;
      candidates.push_back(std::move(both));
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.predicted_us() < b.predicted_us(); });
  return candidates;
}

}  // namespace stof::cuda
