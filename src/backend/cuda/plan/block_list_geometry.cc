#include "backend/cuda/plan/block_list_geometry.h"

#include <algorithm>
#include <map>

#include "backend/cuda/attention/cost_model.h"
#include "backend/cuda/attention/device_plan.h"
#include "backend/cuda/attention/payload.h"
#include "backend/cuda/attention/queue.h"
#include "codegen/plan.h"
#include "core/bits.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

constexpr std::int64_t kMaxEntries = 0x7fffffff;  // kernels count in 32 bits

std::int32_t narrow(const char* what, std::int64_t value) {
  STOF_CHECK(value <= kMaxEntries, kUnsupported,
             "{}: {} are more than the 2^31 - 1 that the GPU kernels count; use larger blocks or a "
             "smaller max_blocks",
             what, value);
  return static_cast<std::int32_t>(value);
}

/// Keys of block `block` that exist.
std::int64_t keys_of_block(const AttentionProblem& problem, const BlockListShape& shape,
                           std::int64_t block) {
  const std::int64_t keys = std::min(shape.block_kv, problem.seq_kv - block * shape.block_kv);
  return shape.key_block_sizes.empty()
             ? keys
             : std::min(keys, shape.key_block_sizes[static_cast<std::size_t>(block)]);
}

/// Sorts key tiles into whole, partial and empty ones, and makes the payloads of partial ones:
/// the first one hides everything, the others show a tile's first keys.
void classify_tiles(const AttentionProblem& problem, const BlockListShape& shape,
                    const codegen::AttentionConfig& config, BlockListGeometry* out) {
  const auto words = static_cast<std::size_t>(out->params.num_tile_words);
  out->full_tiles.assign(words, 0);
  out->partial_tiles.assign(words, 0);
  out->tile_payloads.assign(static_cast<std::size_t>(out->params.num_tiles), 0);
  std::map<std::int64_t, std::int32_t> payload_of;  // by number of keys
  const auto payload_showing = [&](std::int64_t keys) {
    const auto [at, is_new] =
        payload_of.try_emplace(keys, static_cast<std::int32_t>(payload_of.size()));
    if (is_new) {
      const auto payload_words = static_cast<std::size_t>(config.payload_bytes() / 4);
      out->payloads.resize(out->payloads.size() + payload_words, 0);
      write_payload(
          config, [&](std::int64_t, std::int64_t column) { return column < keys; },
          out->payloads.data() + out->payloads.size() - payload_words);
    }
    return at->second;
  };
  out->params.hidden_payload = payload_showing(0);
  for (std::int64_t tile = 0; tile < out->params.num_tiles; ++tile) {
    const std::int64_t block = tile / out->params.tiles_per_block;
    const std::int64_t before = tile % out->params.tiles_per_block * config.tile_kv;
    const std::int64_t keys = keys_of_block(problem, shape, block) - before;
    if (keys <= 0) continue;
    const std::uint32_t bit = 1u << (tile % 32);
    const auto word = static_cast<std::size_t>(tile / 32);
    if (keys >= config.tile_kv) {
      out->full_tiles[word] |= bit;
    } else {
      out->partial_tiles[word] |= bit;
      out->tile_payloads[static_cast<std::size_t>(tile)] = payload_showing(keys);
    }
  }
}

/// Payloads of the tiles of a key block that holds the diagonal of its query block.
void add_diagonal(const AttentionProblem& problem, const BlockListShape& shape,
                  const codegen::AttentionConfig& config, BlockListGeometry* out) {
  out->params.diagonal_payload = -1;
  if (!shape.causal) return;
  const auto payload_words = static_cast<std::size_t>(config.payload_bytes() / 4);
  out->params.diagonal_payload = static_cast<std::int32_t>(out->payloads.size() / payload_words);
  if (problem.alignment == mask::Alignment::kBottomRight)
    out->params.diagonal_offset =
        static_cast<std::int32_t>((problem.seq_kv - problem.seq_q) / shape.block_q);
  for (std::int64_t before = 0; before < shape.block_kv; before += config.tile_kv) {
    out->payloads.resize(out->payloads.size() + payload_words, 0);
    write_payload(
        config, [&](std::int64_t row, std::int64_t column) { return before + column <= row; },
        out->payloads.data() + out->payloads.size() - payload_words);
  }
}

/// The configuration, or one like it whose tiles divide the blocks.
codegen::AttentionConfig narrowed(codegen::AttentionConfig config, const BlockListShape& shape) {
  if (shape.block_q % config.query_rows() != 0 ||
      (shape.causal && shape.block_q != config.query_rows())) {
    config.warpgroups = config.split_columns ? config.warpgroups : 1;
    config.warp_slabs = 1;
    config.ping_pong = false;
    config.producer_registers = 40;  // one warpgroup leaves room; 24 would spill beside ALiBi
    config.tile_kv = std::min(config.tile_kv, 64);  // 96 keys would spill beside position buckets
  }
  if (shape.block_kv % config.tile_kv != 0) config.tile_kv = 64;
  return config;
}

bool tiles_divide(const codegen::AttentionConfig& config, const BlockListShape& shape) {
  // The diagonal's payloads are those of a whole query block.
  if (shape.causal && config.query_rows() != shape.block_q) return false;
  return (!config.pack_heads || shape.per_kv_head) && shape.block_q % config.query_rows() == 0 &&
         shape.block_kv % config.tile_kv == 0;
}

double predicted_us(const AttentionProblem& problem, const BlockListShape& shape,
                    const codegen::AttentionConfig& config, const KernelTarget& target) {
  Workload work;
  const auto heads =
      static_cast<double>(problem.batch * problem.num_heads_q / config.heads_per_record());
  const double tiles = std::max(
      1.0, shape.expected_share * static_cast<double>(ceil_div(problem.seq_kv, config.tile_kv)));
  work.items = heads * static_cast<double>(ceil_div(problem.seq_q, config.query_rows()));
  work.full = work.items * tiles;
  work.longest.full = static_cast<std::int64_t>(tiles);
  work.num_blocks = target.num_sms * config.blocks_per_sm;
  work.can_split = false;
  return predict_us(work, unit_costs(config, target));
}

}  // namespace

std::int64_t BlockListGeometry::list_blocks() const {
  return ceil_div(params.num_rows, codegen::kListRows);
}
std::int64_t BlockListGeometry::order_blocks() const {
  return ceil_div(params.num_records, params.order_group);
}

BlockListGeometry block_list_geometry(const AttentionProblem& problem, const BlockListShape& shape,
                                      const codegen::AttentionConfig& config, int num_blocks) {
  const std::int64_t heads = problem.batch * shape.num_list_heads(problem);
  const std::int64_t record_heads =
      problem.num_heads_q / shape.num_list_heads(problem) / config.heads_per_record();
  const std::int64_t q_blocks = shape.num_q_blocks(problem);
  const std::int64_t kv_blocks = shape.num_kv_blocks(problem);
  const std::int64_t tiles = ceil_div(problem.seq_kv, config.tile_kv);
  const std::int64_t rows = heads * q_blocks;
  const std::int64_t records_per_head = ceil_div(problem.seq_q, config.query_rows());
  const std::int64_t max_blocks = shape.max_blocks == 0 ? kv_blocks : shape.max_blocks;
  BlockListGeometry out;
  BlockListParams& p = out.params;
  p.num_heads = narrow("heads of lists", shape.num_list_heads(problem));
  p.num_heads_q = narrow("num_heads_q", problem.num_heads_q);
  p.heads_per_record = config.heads_per_record();
  p.record_heads = static_cast<std::int32_t>(record_heads);
  p.num_q_blocks = narrow("query blocks", q_blocks);
  p.num_rows = narrow("query blocks of all heads", rows);
  p.max_blocks = narrow("max_blocks", max_blocks);
  p.num_kv_blocks = narrow("key blocks", kv_blocks);
  p.num_tiles = narrow("key tiles", tiles);
  p.num_tile_words = static_cast<std::int32_t>(ceil_div(tiles, 32));
  p.tiles_per_block = static_cast<std::int32_t>(shape.block_kv / config.tile_kv);
  p.query_tile_rows = config.query_rows();
  p.records_per_row = static_cast<std::int32_t>(shape.block_q / config.query_rows());
  p.records_per_head = narrow("query tiles", records_per_head);
  p.num_records = narrow("query tiles of all heads", heads * record_heads * records_per_head);
  p.num_blocks = num_blocks;
  classify_tiles(problem, shape, config, &out);
  add_diagonal(problem, shape, config, &out);

  // Two runs have a hidden block between them, unless a block of fewer keys ends one; what a warp
  // holds at a time ends one, too (kSegmentTiles in kernels/plan/params.cuh).
  constexpr std::int64_t kSegmentTiles = 8192;
  const std::int64_t apart = shape.key_block_sizes.empty()
                                 ? ceil_div(kv_blocks, 2)
                                 : std::min(kv_blocks, ceil_div(tiles, 2));
  p.run_capacity =
      static_cast<std::int32_t>(std::min(max_blocks, apart) + ceil_div(tiles, kSegmentTiles) - 1);
  std::int64_t partial_tiles = 0;
  for (const std::uint32_t word : out.partial_tiles) partial_tiles += __builtin_popcount(word);
  p.partial_capacity =
      static_cast<std::int32_t>(std::clamp<std::int64_t>(partial_tiles, 1, max_blocks));
  if (shape.causal) p.partial_capacity += p.tiles_per_block;
  narrow("runs of the lists", rows * p.run_capacity);
  narrow("partial tiles of the lists", rows * p.partial_capacity);

  // Heads whose keys and values stay in L2 together, or a part of them that can be sorted at once.
  const std::int64_t locality =
      heads_per_locality(problem) / config.heads_per_record() * records_per_head;
  p.order_group = static_cast<std::int32_t>(
      std::min({locality, std::int64_t{codegen::kMaxOrderGroup}, std::int64_t{p.num_records}}));
  return out;
}

std::vector<ConfigCandidate> block_list_candidates(const AttentionProblem& problem,
                                                   const BlockListShape& shape,
                                                   const KernelTarget& target) {
  const auto configs = blockwise_configs(problem, shape.per_kv_head, target, "block lists");
  std::vector<ConfigCandidate> candidates;
  const auto add = [&](const codegen::AttentionConfig& config) {
    if (tiles_divide(config, shape))
      candidates.push_back({config, predicted_us(problem, shape, config, target)});
  };
  for (const auto& config : configs) add(config);
  if (candidates.empty())
    for (const auto& config : configs) add(narrowed(config, shape));
  STOF_CHECK(
      !shape.causal || !candidates.empty(), kUnsupported,
      "causal: no kernel for these head dimensions has query tiles of {} rows; use blocks of 64",
      shape.block_q);
  STOF_ASSERT(!candidates.empty());  // one slab of 64 rows and 64 keys divide every block
  sort_candidates(&candidates);
  return candidates;
}

std::string describe_fault(const ListFault& fault, const AttentionProblem& problem,
                           const BlockListShape& shape) {
  const std::int64_t q_blocks = shape.num_q_blocks(problem);
  const std::int64_t head_of_all = fault.row() / q_blocks;
  const std::string where =
      fmt::format("batch {}, {} {}, query block {}", head_of_all / shape.num_list_heads(problem),
                  shape.per_kv_head ? "key/value head" : "head",
                  head_of_all % shape.num_list_heads(problem), fault.row() % q_blocks);
  if (fault.in_count())
    return fmt::format(
        "counts: {}: expected 0 to the last extent of ids, got {}; it was cut to that", where,
        fault.value());
  return fmt::format("ids: {}: expected 0..{}, got {}; it was left out", where,
                     shape.num_kv_blocks(problem) - 1, fault.value());
}

}  // namespace stof::cuda
