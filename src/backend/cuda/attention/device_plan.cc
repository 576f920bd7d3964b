#include "backend/cuda/attention/device_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "backend/cpu/attention/position_bias.h"
#include "backend/cuda/attention/payload.h"
#include "backend/cuda/attention/queue.h"
#include "core/check.h"
#include "core/hash.h"

namespace stof::cuda {
namespace {

/// The plan's row-major payloads in the order of the kernel.
class PayloadStore {
 public:
  /// known: payloads of other plans in `out`, by content; null: there are none. `num_filled`
  /// payloads of the plan keep their numbers and are not converted; those of `out` come after them.
  PayloadStore(const plan::MaskPlan& plan, const codegen::AttentionConfig& config,
               std::map<Fingerprint, std::int32_t>* known, std::int32_t num_filled,
               std::vector<std::uint32_t>* out)
      : plan_(plan),
        config_(config),
        words_per_payload_(config.payload_bytes() / 4),
        known_(known),
        num_filled_(num_filled),
        out_(out) {}

  std::int32_t converted(std::int32_t payload) {
    if (num_filled_ > 0) return payload;
    const auto [at, is_new] = of_plan_.try_emplace(payload, 0);
    if (is_new) {
      const std::uint64_t* rows = plan_.payloads.data() + payload * plan_.payload_words();
      at->second = append([&](std::int64_t r, std::int64_t c) {
        return (rows[r * plan_.words_per_row() + c / 64] >> (c % 64)) & 1;
      });
    }
    return at->second;
  }

  /// Every row sees the first `columns` keys of the tile.
  std::int32_t first_columns(std::int64_t columns) {
    const auto [at, is_new] = of_columns_.try_emplace(columns, 0);
    if (is_new)
      at->second =
          append([&](std::int64_t, std::int64_t c) -> std::uint64_t { return c < columns; });
    return at->second;
  }

 private:
  template <class Visible>
  std::int32_t append(const Visible& visible) {
    const auto index = static_cast<std::int32_t>(out_->size() / words_per_payload_);
    out_->resize(out_->size() + words_per_payload_, 0);
    std::uint32_t* words = out_->data() + index * words_per_payload_;
    write_payload(config_, visible, words);
    if (known_ == nullptr) return num_filled_ + index;
    const auto [at, is_new] =
        known_->try_emplace(fingerprint_of(words, words_per_payload_ * 4), index);
    if (!is_new) out_->resize(out_->size() - words_per_payload_);
    return at->second;
  }

  const plan::MaskPlan& plan_;
  const codegen::AttentionConfig& config_;
  const std::size_t words_per_payload_;
  std::map<Fingerprint, std::int32_t>* known_;
  const std::int32_t num_filled_;
  std::vector<std::uint32_t>* out_;
  std::unordered_map<std::int32_t, std::int32_t> of_plan_;
  std::unordered_map<std::int64_t, std::int32_t> of_columns_;
};

/// Lists of one (pattern, query tile), shared by all the heads that use it.
struct ItemLists {
  std::int32_t num_partial = 0, num_full = 0, partial_begin = 0, run_begin = 0;
  double cost = 0;
  bool sees_nothing = false;
};

ItemLists copy_lists(const plan::MaskPlan& plan, const plan::WorkItem& item,
                     std::int64_t ragged_columns, PayloadStore* payloads, DevicePlan* out) {
  ItemLists lists;
  lists.partial_begin = static_cast<std::int32_t>(out->partial.size());
  lists.run_begin = static_cast<std::int32_t>(out->runs.size());
  for (auto i = item.partial_begin; i < item.partial_end; ++i) {
    const plan::PartialTile& tile = plan.partial[static_cast<std::size_t>(i)];
    out->partial.push_back({tile.tile, payloads->converted(tile.payload)});
  }
  for (auto i = item.run_begin; i < item.run_end; ++i) {
    plan::TileRun run = plan.runs[static_cast<std::size_t>(i)];
    if (ragged_columns > 0 && run.end == plan.num_kv_tiles()) {
      --run.end;
      out->partial.push_back({run.end, payloads->first_columns(ragged_columns)});
    }
    if (run.begin == run.end) continue;
    out->runs.push_back(run);
    lists.num_full += run.end - run.begin;
  }
  lists.num_partial = static_cast<std::int32_t>(out->partial.size()) - lists.partial_begin;
  lists.sees_nothing = lists.num_partial + lists.num_full == 0;
  if (lists.sees_nothing) {  // the kernel wants a tile: one that it hides from every row
    out->partial.push_back({0, payloads->first_columns(0)});
    lists.num_partial = 1;
  }
  // A partial tile costs a few bit operations per score more; measured at 1.5-6 % of a call.
  lists.cost = kRecordCost + lists.num_full + 1.05 * lists.num_partial;
  return lists;
}

/// Lists of a plan's items, and the items of each pattern by query tile.
struct PartLists {
  std::vector<ItemLists> items;
  std::vector<std::vector<std::size_t>> items_of_pattern;
};

PartLists copy_part(const plan::MaskPlan& plan, const codegen::AttentionConfig& config,
                    std::map<Fingerprint, std::int32_t>* known, std::int32_t num_filled,
                    DevicePlan* out) {
  const std::int64_t ragged = plan.shape.seq_kv % config.tile_kv;
  PayloadStore payloads(plan, config, known, num_filled, &out->payloads);
  PartLists lists;
  lists.items.reserve(plan.items.size());
  lists.items_of_pattern.resize(static_cast<std::size_t>(plan.num_patterns));
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    lists.items.push_back(copy_lists(plan, plan.items[i], ragged, &payloads, out));
    lists.items_of_pattern[static_cast<std::size_t>(plan.items[i].pattern)].push_back(i);
  }
  for (auto& items : lists.items_of_pattern)
    std::sort(items.begin(), items.end(), [&](std::size_t a, std::size_t b) {
      return plan.items[a].q_tile < plan.items[b].q_tile;
    });
  return lists;
}

}  // namespace

std::size_t DevicePlan::bytes() const {
  return records.size() * sizeof(WorkRecord) + partial.size() * sizeof(plan::PartialTile) +
         runs.size() * sizeof(plan::TileRun) + payloads.size() * 4 +
         parts.size() * sizeof(SplitPart) + position_buckets.size() * 4;
}

// Distances are shorter than the longer side, and at max_distance the last bucket has begun.
std::vector<std::int32_t> position_buckets(const AttentionProblem& problem) {
  const PositionBias& rule = problem.position_bias;
  std::vector<std::int32_t> buckets;
  if (rule.num_buckets == 0) return buckets;
  const std::int64_t reach = std::min(rule.max_distance, std::max(problem.seq_q, problem.seq_kv));
  for (std::int64_t distance = -reach; distance <= reach; ++distance)
    buckets.push_back(static_cast<std::int32_t>(cpu::position_bucket(rule, distance)));
  return buckets;
}

bool can_split(const codegen::AttentionConfig& config) {
  // A merging pass has no registers left for joining.
  return config.family == codegen::KernelFamily::kSm90 && !config.merge;
}

std::size_t part_bytes(const codegen::AttentionConfig& config) {
  constexpr std::size_t kStateRegisters = 4;  // maximum and sum of two rows
  return static_cast<std::size_t>(config.warpgroups) * 128 * 4 *
         (static_cast<std::size_t>(config.head_dim_v) / 2 + kStateRegisters);
}

plan::PlanConfig plan_config(const codegen::AttentionConfig& config) {
  plan::PlanConfig wanted;
  wanted.kernel =
      config.family == codegen::KernelFamily::kSm90 ? "sm90_blockwise" : "sm80_blockwise";
  wanted.tile_q = config.query_rows();
  wanted.tile_kv = config.tile_kv;
  return wanted;
}

PlannedPart whole_batch(const AttentionProblem& problem, const plan::MaskPlan& plan,
                        std::int32_t num_filled) {
  PlannedPart whole{&plan, std::vector<std::int32_t>(static_cast<std::size_t>(problem.batch)),
                    num_filled};
  std::iota(whole.batches.begin(), whole.batches.end(), 0);
  return whole;
}

DevicePlan build_device_plan(const AttentionProblem& problem, const plan::MaskPlan& plan,
                             const codegen::AttentionConfig& config, int num_blocks,
                             bool may_split) {
  return build_device_plan(problem, {whole_batch(problem, plan)}, config, num_blocks, may_split);
}

DevicePlan build_device_plan(const AttentionProblem& problem, const std::vector<PlannedPart>& parts,
                             const codegen::AttentionConfig& config, int num_blocks,
                             bool may_split) {
  const std::int64_t heads_per_record = config.heads_per_record();
  const std::int64_t group = problem.num_heads_q / problem.num_heads_kv;
  STOF_CHECK(group % heads_per_record == 0, kUnsupported,
             "{}: packs {} heads of one key/value head, the problem has {}", config.name(),
             heads_per_record, group);
  DevicePlan out;
  out.position_buckets = position_buckets(problem);
  std::map<Fingerprint, std::int32_t> known;
  std::vector<PartLists> lists;
  if (parts.size() == 1) {
    out.partial.reserve(parts[0].plan->partial.size() + parts[0].plan->items.size());
    out.runs.reserve(parts[0].plan->runs.size());
  }
  for (const PlannedPart& part : parts) {
    STOF_CHECK(!config.pack_heads || part.plan->head_extent == 1, kUnsupported,
               "{}: packed heads must share their mask", config.name());
    lists.push_back(
        copy_part(*part.plan, config, parts.size() > 1 ? &known : nullptr, part.num_filled, &out));
  }
  constexpr std::size_t kMaxEntries = 0x7fffffff;  // the kernel counts in 32 bits
  STOF_CHECK(
      out.partial.size() <= kMaxEntries && out.runs.size() <= kMaxEntries, kUnsupported,
      "{}: the mask has {} partial tiles and {} runs, the GPU kernels take 2^31 of each; use a "
      "coarser mask",
      config.name(), out.partial.size(), out.runs.size());

  // Heads whose K and V stay in L2 together are one locality.
  std::vector<QueuedItem> queue;
  const std::int64_t local_heads = heads_per_locality(problem);
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (const std::int32_t b : parts[part].batches)
      for (std::int64_t h = 0; h < problem.num_heads_q; h += heads_per_record) {
        const plan::MaskPlan& plan = *parts[part].plan;
        const std::int64_t locality = (b * problem.num_heads_q + h) / local_heads;
        const std::int32_t pattern = plan.pattern_index(plan.shape.batch == 1 ? 0 : b, h);
        for (const std::size_t i :
             lists[part].items_of_pattern[static_cast<std::size_t>(pattern)]) {
          const ItemLists& l = lists[part].items[i];
          if (config.merge && l.sees_nothing && !config.sink) continue;  // nothing to add
          queue.push_back(
              {{plan.items[i].q_tile * config.query_rows(), static_cast<std::int32_t>(h), b,
                l.num_partial, l.num_full, l.partial_begin, l.run_begin, -1},
               l.cost,
               locality});
        }
      }
  constexpr std::size_t kMaxWorkspace = 64 << 20;
  fill_queue(std::move(queue), num_blocks,
             may_split && can_split(config)
                 ? static_cast<std::int64_t>(kMaxWorkspace / part_bytes(config))
                 : 0,
             &out);
  return out;
}

}  // namespace stof::cuda
