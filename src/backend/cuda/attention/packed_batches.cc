#include "backend/cuda/attention/packed_batches.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "backend/cpu/attention/problem.h"
#include "backend/cuda/attention/packed_plan.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

/// Lengths kept from batch to batch. A length's lists hold tens of KiB: every one up to the
/// positions of most models fits.
constexpr std::size_t kMaxLengths = 2048;

/// Where the lists of a length begin in a batch's.
struct Bases {
  std::int32_t partial, run;
};

Bases append_lists(const DevicePlan& one, const codegen::AttentionConfig& config, DevicePlan* all) {
  const Bases bases{static_cast<std::int32_t>(all->partial.size()),
                    static_cast<std::int32_t>(all->runs.size())};
  const auto payload = static_cast<std::int32_t>(all->payloads.size() * 4 /
                                                 static_cast<std::size_t>(config.payload_bytes()));
  for (plan::PartialTile tile : one.partial) {
    tile.payload += payload;
    all->partial.push_back(tile);
  }
  all->runs.insert(all->runs.end(), one.runs.begin(), one.runs.end());
  all->payloads.insert(all->payloads.end(), one.payloads.begin(), one.payloads.end());
  return bases;
}

void append_records(const DevicePlan& one, const Bases& bases, std::int32_t sequence,
                    DevicePlan* all) {
  for (WorkRecord record : one.records) {
    record.batch = sequence;
    record.partial_begin += bases.partial;
    record.run_begin += bases.run;
    all->records.push_back(record);
  }
}

}  // namespace

PackedBatches::PackedBatches(const AttentionProblem& problem, const mask::Mask& mask,
                             const KernelTarget& target)
    : problem_(problem), mask_(mask), target_(target) {
  STOF_CHECK(mask.batch_extent() == 1 && problem.position_bias.num_buckets == 0 &&
                 problem.score_mod.empty(),
             kInternal,
             "batches of packed sequences: expected one mask for all, no position bias and no "
             "score_mod");
  problem_.batch = 1;
  configs_ = packed_configs(problem_, mask.head_extent() == 1, target_);
  for (const codegen::AttentionConfig& config : configs_)
    costs_.push_back(unit_costs(config, target_));
}

PackedBatches::Length& PackedBatches::length_of(std::int64_t rows) {
  if (const auto known = lengths_.find(rows); known != lengths_.end()) return known->second;
  Length length;  // kept once it is whole: masks made for other lengths are refused on the way
  length.problem = problem_;
  length.problem.seq_q = length.problem.seq_kv = rows;
  const mask::ScoreShape shape = cpu::score_shape(length.problem);
  length.blocks = std::make_shared<mask::BlockMask>(build_block_mask(
      mask_.bind(shape, length.problem.alignment), shape, length.problem.alignment));
  for (const codegen::AttentionConfig& config : configs_)
    length.works.push_back(make_workload(length.problem, *length.blocks, config, target_));
  length.plans.resize(configs_.size());
  return lengths_.emplace(rows, std::move(length)).first->second;
}

const DevicePlan& PackedBatches::plan_of(Length& length, std::size_t kernel) const {
  std::optional<DevicePlan>& plan = length.plans[kernel];
  if (!plan)
    plan = build_device_plan(length.problem,
                             build_mask_plan(*length.blocks, plan_config(configs_[kernel])),
                             configs_[kernel], target_.num_sms * configs_[kernel].blocks_per_sm,
                             /*may_split=*/false);
  return *plan;
}

PackedBatch PackedBatches::batch_of(const std::vector<std::int64_t>& offsets) {
  const std::size_t count = offsets.size() - 1;
  if (lengths_.size() > kMaxLengths) lengths_.clear();
  const auto rows_of = [&](std::size_t i) { return offsets[i + 1] - offsets[i]; };

  PackedBatch batch;
  batch.predicted_us = std::numeric_limits<double>::infinity();
  std::vector<Workload> works(configs_.size());
  for (std::size_t i = 0; i < count; ++i) {
    batch.sequences.push_back(
        {static_cast<std::int32_t>(offsets[i]), static_cast<std::int32_t>(rows_of(i)),
         static_cast<std::int32_t>(offsets[i]), static_cast<std::int32_t>(rows_of(i))});
    if (rows_of(i) == 0) continue;
    const Length& length = length_of(rows_of(i));
    for (std::size_t k = 0; k < works.size(); ++k)
      add_work(length.works[k], 1, costs_[k], &works[k]);
  }
  for (std::size_t k = 0; k < works.size(); ++k) {
    works[k].num_blocks = target_.num_sms * configs_[k].blocks_per_sm;
    works[k].can_split = false;
    const double us = predict_us(works[k], costs_[k]);
    if (us < batch.predicted_us) batch.predicted_us = us, batch.kernel = k;
  }

  // Longest first: what is dear starts early.
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows_of(a) > rows_of(b); });
  Bases bases{};
  std::int64_t appended = 0;  // the length whose lists are the last
  for (const std::size_t i : order) {
    if (rows_of(i) == 0) break;
    const DevicePlan& one = plan_of(length_of(rows_of(i)), batch.kernel);
    if (rows_of(i) != appended) bases = append_lists(one, configs_[batch.kernel], &batch.plan);
    appended = rows_of(i);
    append_records(one, bases, static_cast<std::int32_t>(i), &batch.plan);
  }
  return batch;
}

}  // namespace stof::cuda
