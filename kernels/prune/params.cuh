#pragma once
// What the host hands the kernels that choose key blocks by pooled scores. Mirrored by
// src/backend/cuda/prune/block_params.h.

#include "ptx/types.cuh"

namespace stof::prune {

struct BlockParams {
  const void* q;          // [batch, heads_q, seq_q, head_dim], 16-byte rows, unit last stride
  const void* k;          // [batch, heads_kv, seq_kv, head_dim], likewise
  i64 q_strides[3];       // elements: batch, head, row
  i64 k_strides[3];
  float* pooled_q;        // [batch * heads_q, q_blocks, head_dim]
  float* pooled_k;        // [batch * heads_kv, head_dim, kv_blocks]: neighbours are key blocks
  const unsigned char* used_q;  // [seq_q]: 1 where the query sees something
  const unsigned char* used_k;  // [seq_kv]: 1 where something sees the key
  const unsigned char* states;  // [q_blocks, kv_blocks] of BlockState
  const i32* kept;        // [q_blocks]: how many blocks a row keeps, at most its visible ones
  i32* ids;               // [batch, heads_q, q_blocks, max_kept]; ascending
  i32 batch;
  i32 heads_q;
  i32 heads_kv;
  i32 seq_q;
  i32 seq_kv;
  i32 block;              // tokens a side
  i32 q_blocks;
  i32 kv_blocks;
  i32 max_kept;
  float scale;            // of q k^T
  i32 pool_blocks_q;      // thread blocks that pool queries; those after them pool keys
  i32 padding;
};
static_assert(sizeof(BlockParams) == 168, "block_params.h asserts the same");

enum BlockState : unsigned char { kHidden, kVisible, kStays };

constexpr int kPoolThreads = 128;
/// Choosing: a warp a row, a thread a key block.
constexpr int kChooseThreads = 256, kChooseRows = kChooseThreads / 32;

}  // namespace stof::prune
