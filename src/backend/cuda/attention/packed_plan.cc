#include "backend/cuda/attention/packed_plan.h"

#include <algorithm>

#include "backend/cpu/attention/problem.h"
#include "core/check.h"
#include "plan/config.h"

namespace stof::cuda {
namespace {

using codegen::KernelFamily;

/// Work of all sequences: that of a part as often as it occurs.
Workload work_of(const cpu::PackedSequences& packed, const PackedBlocks& blocks,
                 const codegen::AttentionConfig& config, const KernelTarget& target) {
  Workload all;
  all.num_blocks = target.num_sms * config.blocks_per_sm;
  all.can_split = can_split(config);
  const UnitCosts costs = unit_costs(config, target);
  for (std::size_t part = 0; part < packed.parts.size(); ++part) {
    if (blocks[part] == nullptr) continue;  // its rows store zeros
    const auto times =
        static_cast<double>(std::count(packed.part_of.begin(), packed.part_of.end(), part));
    add_work(make_workload(packed.parts[part].problem, *blocks[part], config, target), times, costs,
             &all);
  }
  return all;
}

}  // namespace

std::vector<codegen::AttentionConfig> packed_configs(const AttentionProblem& problem,
                                                     bool shared_heads,
                                                     const KernelTarget& target) {
  auto configs = blockwise_configs(problem, shared_heads, target, "packed sequences");
  for (codegen::AttentionConfig& config : configs) config.varlen = true;
  return configs;
}

void add_work(const Workload& one, double times, const UnitCosts& costs, Workload* all) {
  const auto cost_of = [&](const TileCounts& tiles) {
    return costs.full_ns * static_cast<double>(tiles.full) +
           costs.partial_ns * static_cast<double>(tiles.partial);
  };
  all->full += times * one.full;
  all->partial += times * one.partial;
  all->items += times * one.items;
  if (cost_of(one.longest) > cost_of(all->longest)) all->longest = one.longest;
}

PackedBlocks blocks_of_parts(const cpu::PackedSequences& packed) {
  PackedBlocks blocks;
  for (const auto& part : packed.parts) {
    const mask::ScoreShape shape = cpu::score_shape(part.problem);
    if (shape.seq_q == 0 || shape.seq_kv == 0) {
      blocks.push_back(nullptr);
      continue;
    }
    const mask::Mask bound = part.mask.bind(shape, part.problem.alignment);
    blocks.push_back(
        std::make_shared<mask::BlockMask>(build_block_mask(bound, shape, part.problem.alignment)));
  }
  return blocks;
}

std::vector<ConfigCandidate> packed_candidates(const cpu::PackedSequences& packed,
                                               const PackedBlocks& blocks,
                                               const KernelTarget& target) {
  const bool shared_heads = std::all_of(blocks.begin(), blocks.end(), [](const auto& mask) {
    return mask == nullptr || mask->head_extent() == 1;
  });
  std::vector<ConfigCandidate> candidates;
  for (const codegen::AttentionConfig& config :
       packed_configs(packed.problem, shared_heads, target))
    candidates.push_back(
        {config, predict_us(work_of(packed, blocks, config, target), unit_costs(config, target))});
  sort_candidates(&candidates);
  return candidates;
}

DevicePlan build_packed_plan(const cpu::PackedSequences& packed, const PackedBlocks& blocks,
                             const codegen::AttentionConfig& config, int num_blocks) {
  std::vector<plan::MaskPlan> plans;
  for (std::size_t part = 0; part < packed.parts.size(); ++part)
    plans.push_back(blocks[part] == nullptr
                        ? plan::build_tileless_plan(cpu::score_shape(packed.parts[part].problem),
                                                    plan_config(config))
                        : build_mask_plan(*blocks[part], plan_config(config)));
  std::vector<PlannedPart> parts;
  for (const plan::MaskPlan& plan : plans) parts.push_back({&plan, {}});
  for (std::size_t i = 0; i < packed.part_of.size(); ++i)
    parts[packed.part_of[i]].batches.push_back(static_cast<std::int32_t>(i));
  return build_device_plan(packed.problem, parts, config, num_blocks);
}

std::vector<Sequence> sequences_of(const cpu::PackedSequences& packed) {
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < packed.part_of.size(); ++i) {
    const AttentionProblem& one = packed.parts[packed.part_of[i]].problem;
    sequences.push_back({static_cast<std::int32_t>(packed.cu_seqlens_q[i]),
                         static_cast<std::int32_t>(one.seq_q),
                         static_cast<std::int32_t>(packed.cu_seqlens_kv[i]),
                         static_cast<std::int32_t>(one.seq_kv)});
  }
  return sequences;
}

}  // namespace stof::cuda
