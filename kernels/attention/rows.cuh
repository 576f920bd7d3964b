#pragma once
// Which rows of the score matrix a thread holds, and which tokens positions are.

#include "attention/records.cuh"
#include "ptx/thread.cuh"

namespace stof {

/// The head and the two rows of a record that this thread of a warpgroup holds: row lane/4 of its
/// warp's 16, and the one 8 below.
template <class D>
struct ThreadRows {
  i32 head;
  i32 position[2];

  __device__ __forceinline__ ThreadRows(const WorkRecord& record, int warpgroup) {
    const int thread = static_cast<int>(ptx::thread_index()) & 127;
    head = record.head + (D::kPackHeads ? warpgroup : 0);
    position[0] = record.q_row + (D::kPackHeads ? 0 : 64 * warpgroup) + 16 * (thread >> 5) +
                  ((thread & 31) >> 2);
    position[1] = position[0] + 8;
  }
};

/// The token at a position of the grid's or the residue order; a packed sequence is in natural order.
/// -1 at a place of the grid's tiles that holds none.
template <class D>
__device__ __forceinline__ i32 query_token(const AttentionParams& params, i32 position) {
  if constexpr (D::kGridOrder)
    return grid_token(params.grid, grid_point(params.grid_q, position >> kGridPlaceBits,
                                              position & ((1 << kGridPlaceBits) - 1)));
  if (D::kVarlen || params.step == 1) return position;
  const i32 residue = position / params.residue_rows_q;
  return (position - residue * params.residue_rows_q) * params.step + residue;
}

/// The same of a key. Positions of a tile that lies in one residue are tokens params.step apart.
template <class D>
__device__ __forceinline__ i32 key_token(const AttentionParams& params, i32 position) {
  if (D::kVarlen || params.step == 1) return position;
  const i32 residue = position / params.residue_rows_kv;
  return (position - residue * params.residue_rows_kv) * params.step + residue;
}

}  // namespace stof
