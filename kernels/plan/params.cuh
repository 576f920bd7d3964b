#pragma once
// What the host hands the kernels that turn block lists in device memory into the records and runs
// that attention kernels walk. Mirrored by src/backend/cuda/plan/block_list_params.h.

#include "attention/records.cuh"

namespace stof::lists {

/// Tiles of a row's list.
struct RowTiles {
  i32 num_full;
  i32 num_partial;
};

/// A row is a query block of one of the lists' heads (query heads, or key/value heads whose query
/// heads share them) of one batch entry: row = (batch * num_heads + head) * num_q_blocks + query
/// block. A block of keys is tiles_per_block key tiles; the last one may have fewer.
struct ListParams {
  const i32* counts;          // [batch, num_heads, num_q_blocks], any strides
  const i32* ids;             // [batch, num_heads, num_q_blocks, max_blocks], any strides
  const u32* full_tiles;      // [num_tile_words]: bit t is set where all keys of tile t exist
  const u32* partial_tiles;   // [num_tile_words]: where some do and some do not
  const i32* tile_payloads;   // [num_tiles]; read of partial tiles
  TileRun* runs;              // [num_rows][run_capacity]
  PartialTile* partial;       // [num_rows][partial_capacity]
  RowTiles* row_tiles;        // [num_rows]
  WorkRecord* records;        // [num_records]
  u64* error;                 // the first fault there was, see report(); ~0: none
  i64 count_strides[3];       // elements
  i64 id_strides[4];
  i32 num_heads;              // of lists
  i32 num_q_blocks;
  i32 num_rows;
  i32 max_blocks;             // entries of a row of ids
  i32 num_kv_blocks;
  i32 num_tiles;
  i32 num_tile_words;
  i32 tiles_per_block;
  i32 run_capacity;
  i32 partial_capacity;
  i32 hidden_payload;         // of a tile that is hidden from every row
  // Records: one a query tile of a head or of heads_per_record heads, records_per_row to a query block.
  i32 num_heads_q;
  i32 heads_per_record;
  i32 record_heads;           // of one head of lists
  i32 query_tile_rows;
  i32 records_per_row;
  i32 records_per_head;
  i32 num_records;
  i32 order_group;            // records that are sorted among themselves, at most kMaxOrderGroup
  i32 num_blocks;             // of the attention kernel, which pop the queue
  // Causal: query block r ends with the tiles of key block r + diagonal_offset, which have the payloads
  // from here on; -1: not causal.
  i32 diagonal_payload;
  i32 diagonal_offset;
};
static_assert(sizeof(ListParams) == 224, "block_list_params.h asserts the same");

/// Both kernels: so many threads a block.
constexpr int kListThreads = 128, kOrderThreads = 256;
/// Tiles that a warp of the list kernel holds as bits at a time.
constexpr int kSegmentWords = 256, kSegmentTiles = 32 * kSegmentWords;
/// Runs in 32 halves of words, and one more that began before.
constexpr int kStagedRuns = 32 * 8 + 1;
constexpr int kWarpBytes = 4 * kSegmentWords + (8 * kStagedRuns + 15) / 16 * 16;
constexpr int kMaxOrderGroup = 4096;
/// Dynamic shared memory of the two.
constexpr int kListSharedBytes = kListThreads / 32 * kWarpBytes;
constexpr int kOrderSharedBytes = 8 * kMaxOrderGroup + 512;

/// Costs in twentieths of a full key tile: those of src/backend/cuda/attention/device_plan.cc.
constexpr i32 kRecordCost = 30, kFullCost = 20, kPartialCost = 21;

}  // namespace stof::lists
