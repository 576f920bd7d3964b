// MaskPlan::validate: every invariant a kernel relies on, named when it is broken.

#include <algorithm>
#include <array>
#include <set>

#include "core/check.h"
#include "plan/bit_rows.h"
#include "plan/config.h"
#include "stof/mask_plan.h"

namespace stof::plan {
namespace {

#define STOF_PLAN_CHECK(condition, ...)                                           \
  STOF_CHECK(condition, kInternal, "mask plan of {}: {}", plan.shape.to_string(), \
             fmt::format(__VA_ARGS__))

void check_patterns(const MaskPlan& plan) {
  STOF_PLAN_CHECK(plan.batch_extent == 1 || plan.batch_extent == plan.shape.batch,
                  "batch_extent {} is neither 1 nor the batch", plan.batch_extent);
  STOF_PLAN_CHECK(plan.head_extent == 1 || plan.head_extent == plan.shape.num_heads,
                  "head_extent {} is neither 1 nor the number of heads", plan.head_extent);
  STOF_PLAN_CHECK(
      static_cast<std::int64_t>(plan.pattern_of.size()) == plan.batch_extent * plan.head_extent,
      "pattern_of has {} entries, expected {}", plan.pattern_of.size(),
      plan.batch_extent * plan.head_extent);
  for (const std::int32_t pattern : plan.pattern_of)
    STOF_PLAN_CHECK(pattern >= 0 && pattern < plan.num_patterns, "pattern {} is outside [0, {})",
                    pattern, plan.num_patterns);
}

/// Query rows and keys of a tile that lie inside the sequence.
struct TileExtent {
  std::int64_t rows, keys;
};

TileExtent extent_of(const MaskPlan& plan, std::int64_t q_tile, std::int64_t kv_tile) {
  const std::int64_t q_begin = q_tile * plan.config.tile_q;
  const std::int64_t k_begin = kv_tile * plan.config.tile_kv;
  return {std::min<std::int64_t>(plan.shape.seq_q - q_begin, plan.config.tile_q),
          std::min<std::int64_t>(plan.shape.seq_kv - k_begin, plan.config.tile_kv)};
}

/// A payload must be neither empty nor full, and must hide everything past the sequence.
void check_payload(const MaskPlan& plan, const WorkItem& item, const PartialTile& tile) {
  const TileExtent extent = extent_of(plan, item.q_tile, tile.tile);
  const std::int64_t words = plan.words_per_row();
  const std::uint64_t* row = plan.payloads.data() + tile.payload * plan.payload_words();
  bool any = false, all = true;
  for (std::int64_t q = 0; q < plan.config.tile_q; ++q, row += words)
    for (std::int64_t word = 0; word < words; ++word) {
      const std::int64_t keys = std::clamp<std::int64_t>(extent.keys - word * 64, 0, 64);
      const std::uint64_t inside = q < extent.rows ? low_bits(keys) : 0;
      STOF_PLAN_CHECK((row[word] & ~inside) == 0,
                      "payload {} of query tile {}, key tile {} shows pairs past the sequence",
                      tile.payload, item.q_tile, tile.tile);
      any = any || row[word] != 0;
      all = all && row[word] == inside;
    }
  STOF_PLAN_CHECK(any && !all, "payload {} of query tile {}, key tile {} is {}", tile.payload,
                  item.q_tile, tile.tile, any ? "full" : "empty");
}

void check_item_tiles(const MaskPlan& plan, const WorkItem& item) {
  const auto num_partial = static_cast<std::int64_t>(plan.partial.size());
  const auto num_runs = static_cast<std::int64_t>(plan.runs.size());
  STOF_PLAN_CHECK(0 <= item.partial_begin && item.partial_begin <= item.partial_end &&
                      item.partial_end <= num_partial && 0 <= item.run_begin &&
                      item.run_begin <= item.run_end && item.run_end <= num_runs,
                  "query tile {} points outside the tile lists", item.q_tile);
  std::int64_t previous = -1;
  for (std::int64_t i = item.partial_begin; i < item.partial_end; ++i) {
    const PartialTile& tile = plan.partial[static_cast<std::size_t>(i)];
    STOF_PLAN_CHECK(tile.tile > previous && tile.tile < plan.num_kv_tiles(),
                    "query tile {}: partial key tile {} is out of order or range", item.q_tile,
                    tile.tile);
    previous = tile.tile;
    STOF_PLAN_CHECK(tile.payload >= 0 && (tile.payload + 1) * plan.payload_words() <=
                                             static_cast<std::int64_t>(plan.payloads.size()),
                    "payload {} does not exist", tile.payload);
    check_payload(plan, item, tile);
  }
  previous = 0;
  std::int64_t num_full = 0;
  for (std::int64_t i = item.run_begin; i < item.run_end; ++i) {
    const TileRun& run = plan.runs[static_cast<std::size_t>(i)];
    STOF_PLAN_CHECK(run.begin >= previous && run.begin < run.end && run.end <= plan.num_kv_tiles(),
                    "query tile {}: run [{}, {}) is out of order or range", item.q_tile, run.begin,
                    run.end);
    previous = run.end;
    num_full += run.end - run.begin;
  }
  STOF_PLAN_CHECK(item.cost == item_cost(item.partial_end - item.partial_begin, num_full),
                  "query tile {}: cost {} does not follow from its tiles", item.q_tile, item.cost);
}

/// Every (pattern, q_tile) once per split, and no key tile twice among its splits.
void check_coverage(const MaskPlan& plan) {
  std::vector<const WorkItem*> by_place;
  for (const WorkItem& item : plan.items) by_place.push_back(&item);
  std::sort(by_place.begin(), by_place.end(), [](const WorkItem* a, const WorkItem* b) {
    return std::tuple(a->pattern, a->q_tile, a->split) <
           std::tuple(b->pattern, b->q_tile, b->split);
  });
  std::size_t next = 0;
  std::vector<TileRun> seen;
  for (std::int32_t pattern = 0; pattern < plan.num_patterns; ++pattern)
    for (std::int64_t q_tile = 0; q_tile < plan.num_q_tiles(); ++q_tile) {
      seen.clear();
      const std::int32_t splits =
          next < by_place.size() ? std::max(by_place[next]->num_splits, 1) : 1;
      for (std::int32_t split = 0; split < splits; ++split, ++next) {
        STOF_PLAN_CHECK(next < by_place.size() && by_place[next]->pattern == pattern &&
                            by_place[next]->q_tile == q_tile && by_place[next]->split == split &&
                            by_place[next]->num_splits == splits,
                        "pattern {}, query tile {}, split {} is missing or twice in the queue",
                        pattern, q_tile, split);
        const WorkItem& item = *by_place[next];
        for (std::int64_t i = item.partial_begin; i < item.partial_end; ++i) {
          const std::int32_t tile = plan.partial[static_cast<std::size_t>(i)].tile;
          seen.push_back({tile, tile + 1});
        }
        seen.insert(seen.end(), plan.runs.begin() + item.run_begin,
                    plan.runs.begin() + item.run_end);
      }
      std::sort(seen.begin(), seen.end(),
                [](const TileRun& a, const TileRun& b) { return a.begin < b.begin; });
      for (std::size_t i = 1; i < seen.size(); ++i)
        STOF_PLAN_CHECK(seen[i - 1].end <= seen[i].begin, "query tile {} walks key tile {} twice",
                        q_tile, seen[i].begin);
    }
  STOF_PLAN_CHECK(next == by_place.size(), "the queue has {} items, expected {}", by_place.size(),
                  next);
}

/// Each stored once, and none unused.
void check_payload_store(const MaskPlan& plan) {
  STOF_PLAN_CHECK(static_cast<std::int64_t>(plan.payloads.size()) % plan.payload_words() == 0,
                  "{} payload words are no multiple of {}", plan.payloads.size(),
                  plan.payload_words());
  const auto words = static_cast<std::size_t>(plan.payload_words());
  const std::size_t count = plan.payloads.size() / words;
  const auto less = [&](std::size_t a, std::size_t b) {
    const auto first = plan.payloads.begin();
    const auto at = [&](std::size_t i) { return first + static_cast<std::int64_t>(i * words); };
    return std::lexicographical_compare(at(a), at(a + 1), at(b), at(b + 1));
  };
  std::set<std::size_t, decltype(less)> distinct(less);
  for (std::size_t i = 0; i < count; ++i)
    STOF_PLAN_CHECK(distinct.insert(i).second, "payload {} is stored twice", i);
  std::vector<bool> used(count, false);
  for (const PartialTile& tile : plan.partial) {
    // Tiles that no item walks have not been looked at yet.
    STOF_PLAN_CHECK(tile.payload >= 0 && static_cast<std::size_t>(tile.payload) < count,
                    "payload {} does not exist", tile.payload);
    used[static_cast<std::size_t>(tile.payload)] = true;
  }
  for (std::size_t i = 0; i < count; ++i) STOF_PLAN_CHECK(used[i], "payload {} is never used", i);
}

}  // namespace

void MaskPlan::validate() const {
  check_config(config);
  const MaskPlan& plan = *this;
  check_patterns(plan);
  for (const WorkItem& item : items) {
    STOF_PLAN_CHECK(item.pattern >= 0 && item.pattern < num_patterns && item.q_tile >= 0 &&
                        item.q_tile < num_q_tiles(),
                    "item of pattern {}, query tile {} is outside", item.pattern, item.q_tile);
    check_item_tiles(plan, item);
  }
  STOF_PLAN_CHECK(std::is_sorted(items.begin(), items.end(), queue_order),
                  "the queue is not sorted dearest first");
  check_coverage(plan);
  check_payload_store(plan);
}

#undef STOF_PLAN_CHECK

}  // namespace stof::plan
