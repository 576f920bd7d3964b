#pragma once
// What the host hands every attention kernel: the plan's lists and one record per unit of work.
// Mirrored by src/backend/cuda/attention/device_plan.h.

#include "attention/grid.cuh"
#include "ptx/types.cuh"

namespace stof {

/// A partial key tile and the payload that masks it.
struct PartialTile {
  i32 tile;
  i32 payload;
};

/// Full key tiles [begin, end).
struct TileRun {
  i32 begin;
  i32 end;
};

/// One query tile of one head (or of a pack of heads): walk num_partial partial tiles, then the
/// num_full tiles of the runs from run_begin on.
struct alignas(32) WorkRecord {
  i32 q_row;          // position of the first query row
  i32 head;           // first query head
  i32 batch;
  i32 num_partial;    // -1: no more work; otherwise num_partial + num_full >= 1
  i32 num_full;
  i32 partial_begin;  // into Params::partial
  i32 run_begin;      // into Params::runs
  i32 part;           // slot of this part of a query tile that several records share; -1: whole
};

/// The words of a WorkRecord, where a warp holds one a lane.
enum RecordWord { kQRow, kHead, kBatch, kNumPartial, kNumFull, kPartialBegin, kRunBegin, kPart };

/// Part slots first .. first + count - 1 are one query tile.
struct SplitPart {
  i32 first;
  i32 count;
};

/// One batch entry as kernels see it. In a packed batch (Config::kVarlen) its rows lie among those of
/// others: q, out and lse from q_begin on, k and v from kv_begin on; elsewhere both are 0.
struct alignas(16) Sequence {
  i32 q_begin;
  i32 seq_q;
  i32 kv_begin;
  i32 seq_kv;
};

/// The words of a Sequence, likewise.
enum SequenceWord { kQBegin, kSeqQ, kKvBegin, kSeqKv };

/// Arguments of a forward attention kernel.
struct AttentionParams {
  const WorkRecord* records;      // [num_records], dearest first
  const PartialTile* partial;     // [num_partial]
  const TileRun* runs;            // [num_runs]
  const unsigned char* payloads;  // [num_payloads][Config::kPayloadBytes]
  u32* queue;                     // [2], zero before the first launch; every launch leaves it zero
  const SplitPart* parts;         // [num_parts]
  float* workspace;               // [num_parts][warpgroups][kPartFloats]; not read before written
  u32* arrivals;                  // [num_parts][warps], zero likewise
  void* out;                      // [batch, num_heads_q, seq_q, head_dim_v], unit last stride
  float* lse;                     // [batch, num_heads_q, seq_q] contiguous; null: not wanted (never
                                  // null with Config::kMerge, which also reads it)
  i64 out_batch_stride;           // elements
  i64 out_head_stride;
  i64 out_row_stride;
  i32 num_records;
  i32 num_runs;                   // room in runs: entries past the plan's may be read, not used
  i32 num_heads_q;
  i32 heads_per_group;            // query heads per key/value head
  i32 seq_q;                      // with Config::kVarlen the rows of all sequences
  // Residue order of stride step (1: natural order): position p is token (p % n) * step + p / n,
  // where n is the number of rows in a residue. Records and tiles count positions.
  i32 step;
  i32 residue_rows_q;             // seq_q / step
  i32 residue_rows_kv;            // seq_kv / step
  float scale_log2;               // softmax scale * log2(e); > 0
  float softcap;                  // read by variants with Config::kSoftcap
  float scale;                    // softmax scale, likewise
  // Read by variants with kVarlen, kAlibi, kSink, kBias and kPositionBias; null elsewhere. Strides
  // in elements.
  const Sequence* sequences;      // [batch]
  const float* alibi_slopes;      // [num_heads_q]
  const float* sink;              // [num_heads_q]
  const float* bias;              // [batch, num_heads_q, seq_q, seq_kv], any strides, 0 included
  i64 alibi_stride;
  i64 sink_stride;
  i64 bias_strides[4];
  const float* position_table;    // [buckets, num_heads_q], any strides
  const i32* position_buckets;    // the bucket of distances -position_reach .. position_reach; this
                                  // points to distance 0
  i64 position_head_stride;
  i32 position_bucket_stride;
  i32 position_reach;             // from here on distances of one sign share a bucket
  i32 seq_kv;
  i32 bottom_right;               // distances are key - query - (seq_kv - seq_q), else key - query
  i32 bias_pairs;                 // bias may be read two keys at a time: unit last stride, natural
                                  // order, every even key at an address divisible by 8
  i32 zero;                       // 0, which the compiler does not know; see scores.cuh
  // With Config::kGridOrder positions and tiles are those of grid.cuh, and there is no step.
  i32 grid[3];                    // extents of the token grid in z, y, x
  GridCut grid_q;
  GridCut grid_kv;
};
static_assert(sizeof(AttentionParams) == 320, "blockwise_pass.cc asserts the same");
static_assert(sizeof(WorkRecord) == 32, "device_plan.h asserts the same");

}  // namespace stof
