#include "backend/cuda/attention/queue.h"

#include <algorithm>
#include <cmath>

namespace stof::cuda {
namespace {

// Costs in key tiles, measured on small problems: a part is written in float32 and waited for, and
// the block that joins reads every part.
constexpr double kPartCost = 3;
constexpr double kJoinCost = 4, kJoinCostPerPart = 0.5;
constexpr int kMaxPartsPerItem = 32;
constexpr int kMinTilesPerPart = 8;
/// Longest-first order absorbs items up to about a block's fair share.
constexpr double kTooLong = 0.8;

int num_tiles(const WorkRecord& record) { return record.num_partial + record.num_full; }

struct Costs {
  double total = 0, lowest = 1e300, highest = 0;
  bool alike() const { return highest <= 1.5 * lowest; }
};

Costs costs_of(const std::vector<QueuedItem>& items) {
  Costs costs;
  for (const QueuedItem& item : items) {
    costs.total += item.cost;
    costs.lowest = std::min(costs.lowest, item.cost);
    costs.highest = std::max(costs.highest, item.cost);
  }
  return costs;
}

/// Cuts items into parts while there is room for them.
class Splitter {
 public:
  Splitter(std::int64_t max_parts, DevicePlan* plan) : max_parts_(max_parts), plan_(plan) {}

  /// Appends the item to `out`, in `parts` parts where that is possible.
  void append(const QueuedItem& item, int parts, std::vector<QueuedItem>* out) {
    const int tiles = num_tiles(item.record);
    parts = std::min({parts, tiles / kMinTilesPerPart, kMaxPartsPerItem});
    const auto first = static_cast<std::int64_t>(plan_->parts.size());
    if (parts < 2 || first + parts > max_parts_) {
      out->push_back(item);
      return;
    }
    for (int p = 0; p < parts; ++p) {
      QueuedItem part = item;
      part.record = slice(item.record, tiles * p / parts, tiles * (p + 1) / parts);
      part.record.part = static_cast<std::int32_t>(first + p);
      part.cost = kRecordCost + num_tiles(part.record) + kPartCost;
      out->push_back(part);
      plan_->parts.push_back({static_cast<std::int32_t>(first), parts});
    }
  }

 private:
  /// Tiles [begin, end) of a record, counted through its partial tiles and then its full ones.
  WorkRecord slice(const WorkRecord& record, int begin, int end) {
    WorkRecord out = record;
    const int partial_begin = std::min(begin, record.num_partial);
    out.partial_begin += partial_begin;
    out.num_partial = std::min(end, record.num_partial) - partial_begin;
    const int full_begin = std::max(begin - record.num_partial, 0);
    const int full_end = std::max(end - record.num_partial, 0);
    out.num_full = full_end - full_begin;
    out.run_begin = static_cast<std::int32_t>(plan_->runs.size());
    int at = 0;
    for (int run = record.run_begin; at < full_end; ++run) {
      const plan::TileRun tiles = plan_->runs[static_cast<std::size_t>(run)];
      const int length = tiles.end - tiles.begin;
      const int from = std::max(full_begin - at, 0), to = std::min(full_end - at, length);
      if (from < to) plan_->runs.push_back({tiles.begin + from, tiles.begin + to});
      at += length;
    }
    return out;
  }

  const std::int64_t max_parts_;
  DevicePlan* plan_;
};

void sort_queue(std::vector<QueuedItem>* items, int num_blocks) {
  const Costs costs = costs_of(*items);
  const double outlier = 0.15 * costs.total / num_blocks;
  // With most items above the bar nothing is an outlier: keep the localities.
  const bool outliers_first =
      !costs.alike() && costs.highest > 4 * costs.total / static_cast<double>(items->size());
  const auto before = [&](const QueuedItem& a, const QueuedItem& b) {
    const bool a_first = a.cost > outlier, b_first = b.cost > outlier;
    if (outliers_first && a_first != b_first) return a_first;
    if (a.locality != b.locality) return a.locality < b.locality;
    return !costs.alike() && a.cost > b.cost;
  };
  if (!std::is_sorted(items->begin(), items->end(), before))  // as equal ones are
    std::stable_sort(items->begin(), items->end(), before);
}

}  // namespace

std::int64_t heads_per_locality(const AttentionProblem& problem) {
  const double kv_bytes = 2.0 * static_cast<double>(problem.seq_kv) *
                          static_cast<double>(problem.head_dim_qk + problem.head_dim_v);
  constexpr double kL2Share = 24e6;
  return problem.num_heads_q / problem.num_heads_kv *
         std::max<std::int64_t>(1, static_cast<std::int64_t>(kL2Share / std::max(kv_bytes, 1.0)));
}

double longest_uncut(double share) { return std::max(kTooLong * share, 2.0 * kMinTilesPerPart); }

double tail_rounds(std::int64_t remainder, int num_blocks, double tiles, int parts) {
  const double rounds =
      std::ceil(static_cast<double>(remainder) * parts / static_cast<double>(num_blocks));
  if (parts == 1) return rounds * (tiles + kRecordCost);
  return rounds * (tiles / parts + kRecordCost + kPartCost) + kJoinCost + kJoinCostPerPart * parts;
}

int tail_parts(std::int64_t remainder, int num_blocks, double tiles) {
  if (remainder == 0) return 1;
  const int most = std::min(kMaxPartsPerItem, static_cast<int>(tiles) / kMinTilesPerPart);
  double best = 0.9 * tail_rounds(remainder, num_blocks, tiles, 1);
  int chosen = 1;
  for (int parts = 2; parts <= most; ++parts) {
    const double cost = tail_rounds(remainder, num_blocks, tiles, parts);
    if (cost < best) best = cost, chosen = parts;
  }
  return chosen;
}

void fill_queue(std::vector<QueuedItem> items, int num_blocks, std::int64_t max_parts,
                DevicePlan* plan) {
  const Costs costs = costs_of(items);
  const double ideal = costs.total / num_blocks;
  Splitter splitter(max_parts, plan);
  std::vector<QueuedItem> queue;
  queue.reserve(items.size());
  if (costs.alike()) {
    sort_queue(&items, num_blocks);
    const auto remainder = static_cast<std::int64_t>(items.size()) % num_blocks;
    const int parts = tail_parts(remainder, num_blocks, costs.highest - kRecordCost);
    const auto whole = items.size() - static_cast<std::size_t>(remainder);
    for (std::size_t i = 0; i < items.size(); ++i)
      splitter.append(items[i], i < whole ? 1 : parts, &queue);
  } else {
    const double bar = longest_uncut(ideal);
    for (const QueuedItem& item : items)
      splitter.append(item, item.cost > bar ? static_cast<int>(std::ceil(2 * item.cost / bar)) : 1,
                      &queue);
    sort_queue(&queue, num_blocks);
  }
  plan->records.reserve(queue.size());
  for (const QueuedItem& item : queue) plan->records.push_back(item.record);
}

}  // namespace stof::cuda
