#pragma once
// Sizes that follow from a Config, and what the host hands the kernels.

#include "attention/decode/schedule.cuh"
#include "attention/warp_rows.cuh"

namespace stof::decode {

/// A key tile of a static mask and the payload that masks it; payload -1: all rows see all of it.
struct ListedTile {
  i32 tile;
  i32 payload;
};

/// Arguments of the decode kernel and of its combine. Strides in elements. Rows of a key/value head
/// are (query head in the group, query) pairs: row = head_in_group * seq_q + query.
struct DecodeParams {
  const void* q;              // [batch, num_heads_q, seq_q, head_dim_qk]
  const void* k;              // [batch or page, num_heads_kv, seq_kv or page row, head_dim_qk]
  const void* v;              // likewise, head_dim_v
  void* out;                  // [batch, num_heads_q, seq_q, head_dim_v]
  float* lse;                 // [batch, num_heads_q, seq_q] contiguous; null: not wanted
  float* partial_out;         // [2 * blocks][slot_rows][head_dim_v]: unfinished sequences
  float2* partial_sums;       // [2 * blocks][slot_rows]: their maxima (in log2) and sums
  u32* arrivals;              // [num_sequences], zeros before and after; with Config::kMerges
  const i32* lengths;         // [batch]; null: seq_kv each
  const i32* page_table;      // [batch, pages]; with Config::kPageSize
  const ListedTile* tiles;    // with Config::kLists: every sequence's tiles
  const u64* payloads;        // [num_payloads][row_blocks * Config rows]: bit i = key i of the tile
  const i64* sequence_begin;  // [num_sequences + 1]: tiles of earlier sequences
  const i64* list_begin;      // [num_sequences]: into tiles
  const float* sink;          // [num_heads_q]: a logit that joins the sum; null: none
  const float* alibi_slopes;  // [num_heads_q]; with Config::kAlibi
  // With Config::kPositionBias: [buckets, num_heads_q] and the bucket of a distance, key - query,
  // at distances -position_reach to position_reach; farther ones have these two's.
  const float* position_table;
  const i32* position_buckets;
  i64 q_strides[3];           // batch, head, row
  i64 k_strides[3];           // batch or page, head, row
  i64 v_strides[3];
  i64 out_strides[3];
  i64 page_table_stride;
  i32 batch;
  i32 num_heads_kv;
  i32 group;  // query heads per key/value head
  i32 seq_q;
  i32 num_rows;    // group * seq_q
  i32 row_blocks;  // pieces of the rows that each walk all keys; 1 up to the Config's rows
  i32 slot_rows;   // rows of a partial slot: the smaller of num_rows and the Config's
  i32 seq_kv;      // longest length
  Window window;
  i32 resident_blocks;  // fill the GPU once
  i32 max_waves;
  float scale;    // softmax scale
  float softcap;  // with Config::kSoftcap
  i32 position_reach;
};
static_assert(sizeof(DecodeParams) == 312, "decode_plan.cc asserts the same");

/// `Config` (emitted by src/codegen/decode.cc) has: Element, kHeadDimQk, kHeadDimV, kRowWarps,
/// kRowTiles, kKeyWarps, kTileKeys, kStages, kPageSize (0: contiguous), kLists, kSoftcap, kAlibi,
/// kPositionBias, kEarlyStart, kMerges (the last block of a sequence merges its parts: no combine
/// follows), kEarlyKeys (DecodeProblem::early_keys).
template <class Config>
struct Derived : Config {
  static constexpr int kThreads = 32 * Config::kRowWarps * Config::kKeyWarps;
  /// Warps of a team share its keys and hold different rows; teams share nothing until the end.
  static constexpr int kTeams = Config::kKeyWarps;
  static constexpr int kTeamThreads = 32 * Config::kRowWarps;
  static constexpr int kTeamKeys = Config::kTileKeys / kTeams;
  static constexpr int kStepKeys = 16;  // keys of one matrix product of weights and values
  static constexpr int kSteps = kTeamKeys / kStepKeys;
  static constexpr int kRows = 16 * Config::kRowWarps * Config::kRowTiles;

  /// 16-byte chunks of a row. Products take 16 columns at a time: where head_dim_qk is an odd
  /// multiple of 8, one chunk of zeros follows.
  static constexpr int kChunksQk = 2 * WarpRows<Config>::kStepsQk;
  static constexpr int kChunksV = Config::kHeadDimV / 8;
  static constexpr int kPitchQk = WarpRows<Config>::kPitchQk, kPitchV = WarpRows<Config>::kPitchV;
  static constexpr int kOutTiles = WarpRows<Config>::kOutTiles;
  static constexpr int kMergePitch = WarpRows<Config>::kMergePitch;

  static constexpr int kKeyBytes = Config::kTileKeys * kPitchQk;
  static constexpr int kValueBytes = Config::kTileKeys * kPitchV;
  /// Every team has its own copy of a listed tile's payload.
  static constexpr int kPayloadBytes = Config::kLists ? kTeams * kRows * 8 : 0;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes + kPayloadBytes;
  static constexpr int kQueryBytes = kRows * kPitchQk;
  /// At a sequence's end the ring holds every team's output rows, then their maxima and sums.
  static constexpr int kMergeBytes = kTeams * kRows * (4 * kMergePitch + 8);
  static constexpr int kRingBytes =
      Config::kStages * kStageBytes > kMergeBytes ? Config::kStages* kStageBytes : kMergeBytes;
  static constexpr int kSharedBytes = kQueryBytes + kRingBytes;
};

}  // namespace stof::decode
