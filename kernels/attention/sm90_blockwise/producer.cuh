#pragma once
// The producer warp: takes work from the queue and feeds Q, K, V and mask payloads by TMA.

#include "attention/records.cuh"
#include "attention/sm90_blockwise/config.cuh"
#include "ptx/copy.cuh"
#include "ptx/grid.cuh"

namespace stof {

/// The tensors as the copy engine sees them: dimensions {head_dim, row in residue, residue, heads,
/// batch}. A box has 64 columns and as many rows as a tile, over several residues where those are
/// shorter than a tile.
struct OperandMaps {
  const ptx::TensorMap* q;  // boxes of 64 rows
  const ptx::TensorMap* k;  // boxes of kTileKv rows
  const ptx::TensorMap* v;
};

/// Walks a record's tiles in order. Lists are read 32 entries at a time, one per lane.
class TileWalker {
 public:
  __device__ TileWalker(const AttentionParams& params, const WorkRecord& record, int lane)
      : params_(params), record_(record), lane_(lane) {}

  /// Tile index of step i (0, 1, ...); payload is -1 for full tiles. All lanes call it together.
  __device__ __forceinline__ i32 next(int i, i32* payload) {
    if (i < record_.num_partial) {
      if ((i & 31) == 0 && i + lane_ < record_.num_partial)
        entry_ = params_.partial[record_.partial_begin + i + lane_];
      *payload = __shfl_sync(~0u, entry_.payload, i & 31);
      return __shfl_sync(~0u, entry_.tile, i & 31);
    }
    *payload = -1;
    if (tile_ == run_end_) {
      const TileRun run = params_.runs[record_.run_begin + run_++];
      tile_ = run.begin;
      run_end_ = run.end;
    }
    return tile_++;
  }

 private:
  const AttentionParams& params_;
  const WorkRecord& record_;
  const int lane_;
  PartialTile entry_{0, 0};
  i32 run_ = 0, tile_ = 0, run_end_ = 0;
};

/// Loads `rows` rows from `position` on, one 64-column chunk after the other.
__device__ __forceinline__ void load_chunks(u32 shared, const ptx::TensorMap* map, u32 barrier,
                                            int chunks, int rows, i32 position, i32 residue_rows,
                                            i32 head, i32 batch) {
  const i32 residue = position / residue_rows;
  const i32 row = position - residue * residue_rows;
  for (int chunk = 0; chunk < chunks; ++chunk)
    ptx::load_tile(shared + chunk * rows * 128, map, barrier, chunk * 64, row, residue, head, batch);
}

/// Brings the block's first record and the head of its lists into the first-level cache. They are
/// the plan's and never written, so this may run before the previous kernel has finished; in
/// launches of a few microseconds every trip to memory shows. For a warp that has nothing else to
/// do: the producer has few registers.
__device__ __forceinline__ void warm_lists(const AttentionParams& params, int ticket, int lane) {
  if (ticket >= params.num_records) return;
  const WorkRecord record = params.records[ticket];
  if (lane < record.num_partial)
    ptx::touch_global(params.partial + record.partial_begin + lane);
  if (lane == 0 && record.num_full > 0) ptx::touch_global(params.runs + record.run_begin);
}

template <class D>
__device__ __forceinline__ void run_producer(const AttentionParams& params, const OperandMaps& maps,
                                             unsigned char* shared) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const u32 base = ptx::shared_address(shared);
  const Barriers<D> barriers{base + D::kBarrierOffset};
  Ring<D::kQueryStages> query;
  Ring<D::kStages> key, value;

  int ticket = static_cast<int>(blockIdx.x);
  for (;;) {
    WorkRecord record{};
    record.num_partial = -1;
    if (ticket < params.num_records) record = params.records[ticket];
    Sequence sequence{0, params.seq_q, 0, 0};
    if constexpr (D::kVarlen)
      if (record.num_partial >= 0) sequence = params.sequences[record.batch];
    const i32 batch = D::kVarlen ? 0 : record.batch;

    ptx::wait(barriers.query_empty(query.stage), query.parity ^ 1);
    if (lane == 0) {
      unsigned char* item = shared + D::kRecordOffset + D::kItemBytes * query.stage;
      *reinterpret_cast<WorkRecord*>(item) = record;
      if constexpr (D::kVarlen) *reinterpret_cast<Sequence*>(item + 32) = sequence;
      const int total = record.num_partial + record.num_full;
      const u32 full = barriers.query_full(query.stage);
      ptx::arrive_expect_bytes(full, total > 0 ? D::kWarpgroups * D::kQueryBytes : 0);
      if (total > 0) {
        for (int w = 0; w < D::kWarpgroups; ++w)
          load_chunks(
              base + D::kQueryOffset + (query.stage * D::kWarpgroups + w) * D::kQueryBytes, maps.q,
              full, D::kChunksQk, 64,
              sequence.q_begin + record.q_row + (D::kPackHeads ? 0 : 64 * w),
              params.residue_rows_q, record.head + (D::kPackHeads ? w : 0), batch);
      }
    }
    query.next();
    if (record.num_partial < 0) return;

    const int total = record.num_partial + record.num_full;
    const i32 head_kv = record.head / params.heads_per_group;
    TileWalker walker(params, record, lane);
    i32 previous_tile = 0;
    u32 next_ticket = 0;
    for (int i = 0; i <= total; ++i) {
      // Late, so that a long item does not hold a ticket another block could have started.
      if (i == (total > 3 ? total - 3 : 0) && lane == 0) next_ticket = atomicAdd(params.queue, 1u);
      i32 tile = 0, payload = -1;
      if (i < total) {
        tile = walker.next(i, &payload);
        ptx::wait(barriers.key_empty(key.stage), key.parity ^ 1);
        if (lane == 0) {
          const u32 full = barriers.key_full(key.stage);
          if constexpr (D::kNeedsKeys)  // published by the arrival
            *reinterpret_cast<i32*>(shared + D::kKeyPositionOffset + 8 * key.stage) =
                tile * D::kTileKv;
          ptx::arrive_expect_bytes(full, D::kKeyBytes + (payload >= 0 ? D::kPayloadBytes : 0));
          load_chunks(base + D::kKeyOffset + key.stage * D::kKeyBytes, maps.k, full, D::kChunksQk,
                      D::kTileKv, sequence.kv_begin + tile * D::kTileKv, params.residue_rows_kv,
                      head_kv, batch);
          if (payload >= 0)
            ptx::load_bytes(base + D::kPayloadOffset + key.stage * D::kPayloadBytes,
                            params.payloads + static_cast<i64>(payload) * D::kPayloadBytes,
                            D::kPayloadBytes, full);
        }
        key.next();
      }
      if (i > 0) {  // V one step behind K: the consumers need it one step later
        ptx::wait(barriers.value_empty(value.stage), value.parity ^ 1);
        if (lane == 0) {
          const u32 full = barriers.value_full(value.stage);
          ptx::arrive_expect_bytes(full, D::kValueBytes);
          load_chunks(base + D::kValueOffset + value.stage * D::kValueBytes, maps.v, full,
                      D::kChunksV, D::kTileKv, sequence.kv_begin + previous_tile * D::kTileKv,
                      params.residue_rows_kv, head_kv, batch);
        }
        value.next();
      }
      previous_tile = tile;
    }
    ticket = static_cast<int>(gridDim.x + __shfl_sync(~0u, next_ticket, 0));
  }
}

}  // namespace stof
