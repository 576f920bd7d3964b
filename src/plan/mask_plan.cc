#include "stof/mask_plan.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "core/bits.h"
#include "core/check.h"
#include "core/hash.h"
#include "plan/config.h"

namespace stof::plan {
namespace {

const char* to_string(PayloadOrder order) {
  switch (order) {
    case PayloadOrder::kRowMajor:
      return "row_major";
  }
  throw_error(ErrorCode::kInternal, "payload order {} has no name", static_cast<int>(order));
}

void check_tile(const char* field, std::int32_t tile) {
  STOF_CHECK(tile >= 8 && tile <= kMaxTile && tile % 8 == 0, kInvalidArgument,
             "plan config {}: expected a multiple of 8 from 8 to {}, got {}", field, kMaxTile,
             tile);
}

std::int64_t num_full_tiles(const MaskPlan& plan) {
  std::int64_t count = 0;
  for (const TileRun& run : plan.runs) count += run.end - run.begin;
  return count;
}

std::int64_t num_payloads(const MaskPlan& plan) {
  return static_cast<std::int64_t>(plan.payloads.size()) / plan.payload_words();
}

template <class T>
void add_vector(Hasher& hasher, const std::vector<T>& values) {
  hasher.add(values.data(), values.size() * sizeof(T));
}

}  // namespace

void check_config(const PlanConfig& config) {
  STOF_CHECK(!config.kernel.empty(), kInvalidArgument,
             "plan config kernel: expected a name, got an empty one");
  check_tile("tile_q", config.tile_q);
  check_tile("tile_kv", config.tile_kv);
  STOF_CHECK(config.max_tiles_per_split >= 0, kInvalidArgument,
             "plan config max_tiles_per_split: expected 0 (never split) or more, got {}",
             config.max_tiles_per_split);
}

std::int64_t MaskPlan::num_q_tiles() const { return ceil_div(shape.seq_q, config.tile_q); }

std::int64_t MaskPlan::num_kv_tiles() const { return ceil_div(shape.seq_kv, config.tile_kv); }

std::int64_t MaskPlan::words_per_row() const { return ceil_div(config.tile_kv, 64); }

std::int64_t MaskPlan::payload_words() const { return config.tile_q * words_per_row(); }

std::int32_t MaskPlan::pattern_index(std::int64_t b, std::int64_t h) const {
  STOF_CHECK(b >= 0 && b < shape.batch && h >= 0 && h < shape.num_heads, kInvalidArgument,
             "mask plan of {}: batch {}, head {} is outside", shape.to_string(), b, h);
  const std::int64_t row = batch_extent == 1 ? 0 : b;
  const std::int64_t col = head_extent == 1 ? 0 : h;
  return pattern_of[static_cast<std::size_t>(row * head_extent + col)];
}

std::string MaskPlan::describe() const {
  return fmt::format(
      "plan {} for {}: tiles {}x{}, {} patterns, {} items, {} full tiles in {} runs, {} partial "
      "tiles with {} distinct payloads",
      shape.to_string(), config.kernel, config.tile_q, config.tile_kv, num_patterns, items.size(),
      num_full_tiles(*this), runs.size(), partial.size(), num_payloads(*this));
}

std::string MaskPlan::to_json() const {
  using Json = nlohmann::ordered_json;
  Json json;
  json["config"] = {{"kernel", config.kernel},
                    {"tile_q", config.tile_q},
                    {"tile_kv", config.tile_kv},
                    {"payload_order", to_string(config.payload_order)},
                    {"max_tiles_per_split", config.max_tiles_per_split}};
  json["shape"] = {{"batch", shape.batch},
                   {"num_heads", shape.num_heads},
                   {"seq_q", shape.seq_q},
                   {"seq_kv", shape.seq_kv}};
  json["batch_extent"] = batch_extent;
  json["head_extent"] = head_extent;
  json["pattern_of"] = pattern_of;
  json["num_patterns"] = num_patterns;
  Json& queue = json["items"] = Json::array();
  for (const WorkItem& item : items)
    queue.push_back({{"pattern", item.pattern},
                     {"q_tile", item.q_tile},
                     {"split", item.split},
                     {"num_splits", item.num_splits},
                     {"partial", {item.partial_begin, item.partial_end}},
                     {"runs", {item.run_begin, item.run_end}},
                     {"cost", item.cost}});
  Json& tiles = json["partial"] = Json::array();
  for (const PartialTile& tile : partial) tiles.push_back({tile.tile, tile.payload});
  Json& full = json["runs"] = Json::array();
  for (const TileRun& run : runs) full.push_back({run.begin, run.end});
  // One string of hexadecimal words per payload: 64-bit numbers do not survive every JSON reader.
  Json& bits = json["payloads"] = Json::array();
  for (std::int64_t index = 0; index < num_payloads(*this); ++index) {
    std::string text;
    for (std::int64_t word = 0; word < payload_words(); ++word)
      text += fmt::format("{:016x}",
                          payloads[static_cast<std::size_t>(index * payload_words() + word)]);
    bits.push_back(std::move(text));
  }
  json["fingerprint"] = fingerprint().hex();
  return json.dump();
}

Fingerprint MaskPlan::fingerprint() const {
  Hasher hasher;
  hasher.add("stof.mask_plan.1").add(config.kernel);
  hasher.add(std::int64_t{config.tile_q}).add(std::int64_t{config.tile_kv});
  hasher.add(static_cast<std::int64_t>(config.payload_order)).add(config.max_tiles_per_split);
  hasher.add(shape.batch).add(shape.num_heads).add(shape.seq_q).add(shape.seq_kv);
  hasher.add(batch_extent).add(head_extent).add(std::int64_t{num_patterns});
  add_vector(hasher, pattern_of);
  hasher.add(static_cast<std::int64_t>(items.size()));
  for (const WorkItem& item : items) {  // by field: the struct may have padding
    hasher.add(std::int64_t{item.pattern}).add(std::int64_t{item.q_tile});
    hasher.add(std::int64_t{item.split}).add(std::int64_t{item.num_splits});
    hasher.add(item.partial_begin).add(item.partial_end);
    hasher.add(item.run_begin).add(item.run_end).add(item.cost);
  }
  add_vector(hasher, partial);
  add_vector(hasher, runs);
  add_vector(hasher, payloads);
  return hasher.finish();
}

}  // namespace stof::plan
