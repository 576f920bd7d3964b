#pragma once
// A MaskPlan as the block-wise kernels read it: work records in queue order, tile lists, payloads
// in accumulator register order. Mirrors kernels/attention/records.cuh.

#include <cstdint>
#include <vector>

#include "codegen/attention.h"
#include "stof/attention.h"
#include "stof/mask_plan.h"

namespace stof::cuda {

struct WorkRecord {
  std::int32_t q_row, head, batch, num_partial, num_full, partial_begin, run_begin;
  std::int32_t part;  ///< slot of a part of a query tile shared by several records; -1: whole
};
static_assert(sizeof(WorkRecord) == 32);

/// Part slots first .. first + count - 1 are one query tile.
struct SplitPart {
  std::int32_t first, count;
};

/// Host image of what the kernel reads.
struct DevicePlan {
  std::vector<WorkRecord> records;
  std::vector<plan::PartialTile> partial;
  std::vector<plan::TileRun> runs;
  std::vector<std::uint32_t> payloads;
  std::vector<SplitPart> parts;
  std::vector<std::int32_t> position_buckets;  ///< of the problem, see below

  std::size_t bytes() const;
};

/// The tile shape the kernel wants of its MaskPlan.
plan::PlanConfig plan_config(const codegen::AttentionConfig& config);

/// Buckets of the distances -reach .. reach of a position bias: beyond, those of one sign share
/// one. Empty without.
std::vector<std::int32_t> position_buckets(const AttentionProblem& problem);

/// Whether the kernel can share a query tile between blocks.
bool can_split(const codegen::AttentionConfig& config);

/// Device memory in which the blocks that share a query tile leave one part.
std::size_t part_bytes(const codegen::AttentionConfig& config);

/// One entry of a packed batch: where its rows begin and how many they are.
struct Sequence {
  std::int32_t q_begin, seq_q, kv_begin, seq_kv;
};
static_assert(sizeof(Sequence) == 16);

/// A mask plan and the batch entries that run it.
struct PlannedPart {
  const plan::MaskPlan* plan;
  std::vector<std::int32_t> batches;
  /// The plan has no payloads but so many numbers of them, which the GPU fills; those that
  /// DevicePlan holds come after them. Of one part alone.
  std::int32_t num_filled = 0;
};
/// One for the whole batch.
PlannedPart whole_batch(const AttentionProblem& problem, const plan::MaskPlan& plan,
                        std::int32_t num_filled = 0);

/// A ragged last key tile becomes partial (its padding bits are 0), so that the kernel's full tiles
/// need no bounds. `num_blocks` persistent blocks will pop the queue. Parts may have lengths of
/// their own, `problem` the longest.
DevicePlan build_device_plan(const AttentionProblem& problem, const std::vector<PlannedPart>& parts,
                             const codegen::AttentionConfig& config, int num_blocks,
                             bool may_split = true);
/// One plan for the whole batch. Without `may_split` every record is a whole query tile.
DevicePlan build_device_plan(const AttentionProblem& problem, const plan::MaskPlan& plan,
                             const codegen::AttentionConfig& config, int num_blocks,
                             bool may_split = true);

}  // namespace stof::cuda
