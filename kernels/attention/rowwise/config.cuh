#pragma once
// Sizes that follow from a Config, and what the host hands the row-wise kernel.

#include "attention/warp_rows.cuh"
#include "ptx/types.cuh"

namespace stof::rowwise {

/// Sixteen query rows of one head, and the chunks of keys they see.
struct alignas(8) RowItem {
  i32 q_row;
  i32 head;
  i32 batch;
  i32 chunk_begin;
  i32 num_chunks;
  i32 unused;
};

/// Sixteen keys: consecutive ones, or any 16 gathered.
struct alignas(16) KeyChunk {
  i32 first;    // columns < 0: keys first .. first + 15
  i32 columns;  // else keys columns[16 * columns ..]; -1 there: no key
  i32 bits;     // visibility, 16 bits a row, bits[8 * bits ..]; < 0: every row sees every key
  i32 unused;
};

/// Arguments. Strides in elements. The lists are the plan's and never change.
struct RowwiseParams {
  const void* q;            // [batch, num_heads_q, seq_q, head_dim_qk]
  const void* k;            // [batch, num_heads_kv, seq_kv, head_dim_qk]
  const void* v;            // [batch, num_heads_kv, seq_kv, head_dim_v]
  void* out;                // [batch, num_heads_q, seq_q, head_dim_v]
  float* lse;               // [batch, num_heads_q, seq_q] contiguous; null: not wanted
  const RowItem* items;     // one a block
  const KeyChunk* chunks;
  const i32* columns;
  const u32* bits;
  i64 q_strides[3];         // batch, head, row
  i64 k_strides[3];
  i64 v_strides[3];
  i64 out_strides[3];
  i32 num_heads_q;
  i32 group;                // query heads per key/value head
  i32 seq_q;
  i32 seq_kv;
  float scale;
  float softcap;            // with Config::kSoftcap
};
static_assert(sizeof(RowwiseParams) == 192, "rowwise_pass.cc asserts the same");
static_assert(sizeof(RowItem) == 24 && sizeof(KeyChunk) == 16, "rowwise_lists.h asserts the same");

/// `Config` (emitted by src/codegen/rowwise.cc) has: Element, kHeadDimQk, kHeadDimV, kWarps, kStages,
/// kSoftcap, kEarlyStart.
template <class Config>
struct Derived : Config {
  static constexpr int kRows = 16;
  static constexpr int kRowTiles = 1;
  static constexpr int kThreads = 32 * Config::kWarps;
  using Rows = WarpRows<Derived>;

  static constexpr int kChunkKeys = 16;
  static constexpr int kPitchQk = row_pitch(Config::kHeadDimQk);
  static constexpr int kPitchV = row_pitch(Config::kHeadDimV);
  static constexpr int kPiecesQk = 2 * ((Config::kHeadDimQk + 15) / 16);  // of 16 bytes, a row
  static constexpr int kPiecesV = Config::kHeadDimV / 8;
  static constexpr int kKeyBytes = kChunkKeys * kPitchQk;
  static constexpr int kValueBytes = kChunkKeys * kPitchV;
  static constexpr int kBitBytes = 2 * kRows;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes + kBitBytes;
  static constexpr int kQueryBytes = kRows * kPitchQk;
  /// At the end the rings hold every warp's output rows, then their maxima and sums.
  static constexpr int kMergePitch = Config::kHeadDimV + 4;  // floats
  static constexpr int kMergeBytes = Config::kWarps * kRows * (4 * kMergePitch + 8);
  static constexpr int kRingBytes = Config::kWarps * Config::kStages * kStageBytes > kMergeBytes
                                        ? Config::kWarps * Config::kStages * kStageBytes
                                        : kMergeBytes;
  static constexpr int kSharedBytes = kQueryBytes + kRingBytes;
};

}  // namespace stof::rowwise
