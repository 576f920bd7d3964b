#pragma once
// The producer warp: takes work from the queue and feeds Q, K, V and mask payloads by TMA.

#include "attention/records.cuh"
#include "attention/sm90_blockwise/config.cuh"
#include "ptx/copy.cuh"
#include "ptx/grid.cuh"
#include "ptx/thread.cuh"

namespace stof {

/// The tensors as the copy engine sees them: dimensions {head_dim, row in residue, residue, heads,
/// batch}. A box has 64 columns and as many rows as a tile, over several residues where those are
/// shorter than a tile. With Config::kGridOrder {head_dim, x, y, z, heads} of one batch entry, a box
/// being a tile of the grid.
struct OperandMaps {
  const ptx::TensorMap* q;  // boxes of 64 rows
  const ptx::TensorMap* k;  // boxes of kTileKv rows
  const ptx::TensorMap* v;
};

/// Walks a record's tiles in order. Both lists are read in aligned windows of 32 entries, one per
/// lane: a trip to memory for every tile would take longer than the tile's arithmetic. What a window
/// holds beside the record's own entries is not used.
class TileWalker {
 public:
  __device__ __forceinline__ TileWalker(const AttentionParams& params, i32 partial_begin,
                                        i32 num_partial, i32 run_begin, i32 num_tiles)
      : params_(params),
        partial_(partial_begin),
        partial_end_(partial_begin + num_partial),
        run_(run_begin) {
    load_partial();
    if (num_tiles > num_partial) load_runs();
  }

  /// The next tile's index; payload is -1 for full tiles. All lanes call it together.
  __device__ __forceinline__ i32 next(i32* payload) {
    if (partial_ < partial_end_) {
      const int lane = partial_ & 31;
      const PartialTile found{__shfl_sync(~0u, entry_.tile, lane),
                              __shfl_sync(~0u, entry_.payload, lane)};
      if ((++partial_ & 31) == 0) load_partial();
      *payload = found.payload;
      return found.tile;
    }
    *payload = -1;
    if (tile_ == run_end_) {
      tile_ = __shfl_sync(~0u, window_.begin, run_ & 31);
      run_end_ = __shfl_sync(~0u, window_.end, run_ & 31);
      if ((++run_ & 31) == 0) load_runs();
    }
    return tile_++;
  }

 private:
  __device__ __forceinline__ void load_partial() {
    const i32 at = (partial_ & ~31) + ptx::lane_index();
    if (at < partial_end_) entry_ = params_.partial[at];
  }
  /// The record does not say how many runs it has.
  __device__ __forceinline__ void load_runs() {
    const i32 at = (run_ & ~31) + ptx::lane_index();
    if (at < params_.num_runs) window_ = params_.runs[at];
  }

  const AttentionParams& params_;
  i32 partial_, partial_end_, run_;
  i32 tile_ = 0, run_end_ = 0;
  PartialTile entry_{0, 0};
  TileRun window_{0, 0};
};

/// A position in residue order.
struct ResidueRow {
  i32 residue, row;
};

__device__ __forceinline__ ResidueRow residue_row(i32 position, i32 step, i32 residue_rows) {
  if (step == 1) return {0, position};
  // An integer division would take as long as all the rest of a step. This quotient is at most one
  // off: residues are few, float32 is exact to 2^24.
  i32 residue = static_cast<i32>(
      __fdividef(static_cast<float>(position), static_cast<float>(residue_rows)));
  i32 row = position - residue * residue_rows;
  if (row < 0) --residue, row += residue_rows;
  if (row >= residue_rows) ++residue, row -= residue_rows;
  return {residue, row};
}

/// Loads kTileRows rows from `position` on, one 64-column chunk after the other.
template <int kChunks, int kTileRows>
__device__ __forceinline__ void load_chunks(u32 shared, const ptx::TensorMap* map, u32 barrier,
                                            i32 position, i32 step, i32 residue_rows, i32 head,
                                            i32 batch) {
  const ResidueRow at = residue_row(position, step, residue_rows);
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    ptx::load_tile(shared + chunk * kTileRows * 128, map, barrier, chunk * 64, at.row, at.residue,
                   head, batch);
}

/// Loads the box of the grid whose first row is `at`.
template <int kChunks, int kTileRows>
__device__ __forceinline__ void load_box(u32 shared, const ptx::TensorMap* map, u32 barrier,
                                         GridPoint at, i32 head) {
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    ptx::load_tile(shared + chunk * kTileRows * 128, map, barrier, chunk * 64, at.x, at.y, at.z,
                   head);
}

/// Loads 64 rows of Q, `row` rows behind the record's position `q_row`.
template <class D>
__device__ __forceinline__ void load_queries(const AttentionParams& params,
                                             const ptx::TensorMap* map, u32 shared, u32 barrier,
                                             i32 q_row, i32 row, i32 head, i32 batch) {
  if constexpr (D::kGridOrder)
    load_box<D::kChunksQk, 64>(shared, map, barrier,
                               grid_point(params.grid_q, q_row >> kGridPlaceBits, row), head);
  else
    load_chunks<D::kChunksQk, 64>(shared, map, barrier, q_row + row, params.step,
                                  params.residue_rows_q, head, batch);
}

/// Loads key tile `tile` of K or V.
template <class D, int kChunks>
__device__ __forceinline__ void load_keys(const AttentionParams& params, const ptx::TensorMap* map,
                                          u32 shared, u32 barrier, i32 kv_begin, i32 tile, i32 head,
                                          i32 batch) {
  if constexpr (D::kGridOrder)
    load_box<kChunks, D::kTileKv>(shared, map, barrier, grid_point(params.grid_kv, tile, 0), head);
  else
    load_chunks<kChunks, D::kTileKv>(shared, map, barrier, kv_begin + tile * D::kTileKv,
                                     params.step, params.residue_rows_kv, head, batch);
}

/// Brings the block's first record and the head of its lists into the first-level cache, before the
/// previous kernel has finished: where kernels write the lists the host launches without early start
/// (DeviceLists::change). In launches of a few microseconds every trip to memory shows. For a warp
/// that has nothing else to do: the producer has few registers.
__device__ __forceinline__ void warm_lists(const AttentionParams& params, int ticket, int lane) {
  if (ticket >= params.num_records) return;
  const WorkRecord record = params.records[ticket];
  if (lane < record.num_partial)
    ptx::touch_global(params.partial + record.partial_begin + lane);
  if (lane == 0 && record.num_full > 0) ptx::touch_global(params.runs + record.run_begin);
}

/// What follows the queue's last record.
__device__ const WorkRecord kNoRecord{0, 0, 0, -1, 0, 0, 0, -1};

template <class D>
__device__ __forceinline__ void run_producer(const AttentionParams& params, const OperandMaps& maps,
                                             unsigned char* shared) {
  const u32 base = ptx::shared_address(shared);
  const Barriers<D> barriers{base + D::kBarrierOffset};
  Ring<D::kQueryStages> query;
  Ring<D::kStages> key, value;

  int ticket = static_cast<int>(blockIdx.x);
  for (;;) {
    // One word a lane: this warp has few registers.
    const i32 lane = ptx::lane_index();
    constexpr int kRecordWords = sizeof(WorkRecord) / 4, kSequenceWords = sizeof(Sequence) / 4;
    i32 record_word = lane == kNumPartial ? -1 : 0;
    if (ticket < params.num_records)
      record_word = reinterpret_cast<const i32*>(params.records + ticket)[lane % kRecordWords];
    i32 sequence_word = 0;
    const auto record = [&](RecordWord word) { return __shfl_sync(~0u, record_word, word); };
    const auto sequence = [&](SequenceWord word) { return __shfl_sync(~0u, sequence_word, word); };
    const i32 num_partial = record(kNumPartial);
    const i32 sequence_index = record(kBatch), batch = D::kVarlen ? 0 : sequence_index;
    if (D::kVarlen && num_partial >= 0)
      sequence_word =
          reinterpret_cast<const i32*>(params.sequences + sequence_index)[lane % kSequenceWords];
    const i32 total = num_partial + record(kNumFull);
    const i32 head = record(kHead);
    TileWalker walker(params, record(kPartialBegin), num_partial, record(kRunBegin), total);

    ptx::wait(barriers.query_empty(query.stage), query.parity ^ 1);
    const i32 q_row = record(kQRow) + sequence(kQBegin);
    const i32 kv_begin = sequence(kKvBegin);
    if (ptx::elect_one()) {
      const u32 full = barriers.query_full(query.stage);
      const u32 item = base + D::kRecordOffset + D::kItemBytes * query.stage;
      constexpr u32 kItemBytes = sizeof(WorkRecord) + (D::kVarlen ? sizeof(Sequence) : 0);
      ptx::arrive_expect_bytes(
          full, num_partial < 0 ? sizeof(WorkRecord) : kItemBytes + D::kWarpgroups * D::kQueryBytes);
      ptx::load_bytes(item, num_partial < 0 ? &kNoRecord : params.records + ticket,
                      sizeof(WorkRecord), full);
      if (num_partial >= 0) {
        if constexpr (D::kVarlen)
          ptx::load_bytes(item + sizeof(WorkRecord), params.sequences + sequence_index,
                          sizeof(Sequence), full);
#pragma unroll
        for (int w = 0; w < D::kWarpgroups; ++w)
          load_queries<D>(
              params, maps.q,
              base + D::kQueryOffset + (query.stage * D::kWarpgroups + w) * D::kQueryBytes, full,
              q_row, D::kPackHeads ? 0 : 64 * w, head + (D::kPackHeads ? w : 0), batch);
      }
    }
    query.next();
    if (num_partial < 0) return;

    const i32 head_kv = head / params.heads_per_group;
    i32 previous_tile = 0;
    u32 next_ticket = 0;
    for (int left = total; left >= 0; --left) {
      const bool first = left == total;
      // Late, so that a long item does not hold a ticket another block could have started.
      if ((left == 3 || (first && left < 3)) && ptx::lane_index() == 0)
        next_ticket = atomicAdd(params.queue, 1u);
      if (left == 1 && !first) {  // the next record on its way
        const u32 at = gridDim.x + __shfl_sync(~0u, next_ticket, 0);
        if (at < static_cast<u32>(params.num_records)) ptx::touch_global(params.records + at);
      }
      i32 tile = 0, payload = -1;
      if (left > 0) {
        tile = walker.next(&payload);
        ptx::wait(barriers.key_empty(key.stage), key.parity ^ 1);
        if (ptx::elect_one()) {
          const u32 full = barriers.key_full(key.stage);
          if constexpr (D::kNeedsKeys)  // published by the arrival
            *reinterpret_cast<i32*>(shared + D::kKeyPositionOffset + 8 * key.stage) =
                tile * D::kTileKv;
          ptx::arrive_expect_bytes(full, D::kKeyBytes + (payload >= 0 ? D::kPayloadBytes : 0));
          load_keys<D, D::kChunksQk>(params, maps.k, base + D::kKeyOffset + key.stage * D::kKeyBytes,
                                     full, kv_begin, tile, head_kv, batch);
          if (payload >= 0)
            ptx::load_bytes(base + D::kPayloadOffset + key.stage * D::kPayloadBytes,
                            params.payloads + static_cast<i64>(payload) * D::kPayloadBytes,
                            D::kPayloadBytes, full);
        }
        key.next();
      }
      if (!first) {  // V one step behind K: the consumers need it one step later
        ptx::wait(barriers.value_empty(value.stage), value.parity ^ 1);
        if (ptx::elect_one()) {
          const u32 full = barriers.value_full(value.stage);
          ptx::arrive_expect_bytes(full, D::kValueBytes);
          load_keys<D, D::kChunksV>(params, maps.v,
                                    base + D::kValueOffset + value.stage * D::kValueBytes, full,
                                    kv_begin, previous_tile, head_kv, batch);
        }
        value.next();
      }
      previous_tile = tile;
    }
    ticket = static_cast<int>(gridDim.x + __shfl_sync(~0u, next_ticket, 0));
  }
}

}  // namespace stof
