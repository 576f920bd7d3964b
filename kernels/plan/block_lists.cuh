#pragma once
// Lists of key blocks, as a model makes them, into tile lists as attention kernels walk them: one
// warp a row. A row's blocks become bits, which sorts them and drops duplicates; ones become runs.

#include "plan/params.cuh"
#include "ptx/grid.cuh"
#include "ptx/thread.cuh"

namespace stof::lists {

/// What was wrong with a list. One word a fault, so that the least one can be kept: the same faults
/// always leave the same word, whichever warp comes first.
enum Fault : u32 { kBadCount = 0, kBadId = 1 };

__device__ __forceinline__ void report(const ListParams& params, i32 row, Fault fault, i32 value) {
  const u64 word = static_cast<u64>(static_cast<u32>(row)) << 33 | static_cast<u64>(fault) << 32 |
                   static_cast<u32>(value);
  atomicMin(params.error, word);
}

/// A row's list in the caller's memory.
struct RowList {
  const i32* ids;
  i32 count;
};

/// The row's list; a count that cannot be is reported and cut to what can.
__device__ __forceinline__ RowList row_list(const ListParams& params, i32 row, int lane) {
  const i32 head_of_all = row / params.num_q_blocks, block = row - head_of_all * params.num_q_blocks;
  const i32 batch = head_of_all / params.num_heads, head = head_of_all - batch * params.num_heads;
  const i32 count = params.counts[batch * params.count_strides[0] + head * params.count_strides[1] +
                                  block * params.count_strides[2]];
  const i32 cut = count < 0 ? 0 : count > params.max_blocks ? params.max_blocks : count;
  if (cut != count && lane == 0) report(params, row, kBadCount, count);
  return {params.ids + batch * params.id_strides[0] + head * params.id_strides[1] +
              block * params.id_strides[2],
          cut};
}

/// Sets the bits of the list's tiles from `first_tile` on. Ids that cannot be are reported once,
/// and set nothing.
__device__ __forceinline__ void set_bits(const ListParams& params, const RowList& list, i32 row,
                                         i32 first_tile, u32* bits, int lane) {
  constexpr int kAtOnce = 4;  // loads under way before the first is used
  for (i32 begin = lane; begin < list.count; begin += 32 * kAtOnce) {
    i32 ids[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + 32 * i < list.count) ids[i] = list.ids[(begin + 32 * i) * params.id_strides[3]];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + 32 * i >= list.count) break;
      if (ids[i] < 0 || ids[i] >= params.num_kv_blocks) {
        if (first_tile == 0) report(params, row, kBadId, ids[i]);
        continue;
      }
      i32 tile = ids[i] * params.tiles_per_block - first_tile;
      for (i32 j = 0; j < params.tiles_per_block; ++j, ++tile)
        if (tile >= 0 && tile < kSegmentTiles) atomicOr(bits + tile / 32, 1u << (tile & 31));
    }
  }
}

/// Sum over the warp of what lanes below this one give; *total: of what all give.
__device__ __forceinline__ u32 sum_below(u32 value, int lane, u32* total) {
  u32 sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const u32 below = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += below;
  }
  *total = __shfl_sync(~0u, sum, 31);
  return sum - value;
}

/// Bits of a word of tiles from `first` on that are below `end`.
__device__ __forceinline__ u32 bits_below(i32 end, i32 first) {
  const i32 count = end - first;
  return count <= 0 ? 0 : count >= 32 ? ~0u : (1u << count) - 1;
}

/// Lists partial tiles and leaves in `bits` what is full. `diagonal`: the row's first tile on it, of
/// a causal plan; what comes after the diagonal is dropped. Returns how many there are now.
__device__ __forceinline__ i32 list_partial(const ListParams& params, i32 first_tile, i32 words,
                                            i32 diagonal, u32* bits, PartialTile* partial, i32 count,
                                            int lane) {
  const bool causal = params.diagonal_payload >= 0;
  for (i32 begin = 0; begin < words; begin += 32) {
    const i32 word = begin + lane, of_row = first_tile / 32 + word;
    u32 mine = 0;
    if (word < words) {
      const u32 all = bits[word];
      const u32 before = causal ? bits_below(diagonal, 32 * of_row) : ~0u;
      const u32 until = causal ? bits_below(diagonal + params.tiles_per_block, 32 * of_row) : 0;
      mine = (all & before & params.partial_tiles[of_row]) | (all & until & ~before);
      bits[word] = all & before & params.full_tiles[of_row];
    }
    if (!__any_sync(~0u, mine != 0)) continue;
    u32 total;
    i32 at = count + static_cast<i32>(sum_below(__popc(mine), lane, &total));
    for (; mine != 0; mine &= mine - 1) {
      const i32 tile = 32 * of_row + __ffs(mine) - 1;
      partial[at++] = {tile, causal && tile >= diagonal ? params.diagonal_payload + tile - diagonal
                                                        : params.tile_payloads[tile]};
    }
    count += static_cast<i32>(total);
  }
  return count;
}

/// Bits 16 * index and on; 0 outside the words.
__device__ __forceinline__ u32 half_word(const u32* bits, i32 words, i32 index) {
  return index >= 0 && index < 2 * words ? bits[index / 2] >> (16 * (index & 1)) & 0xffff : 0;
}

/// Lists runs of set bits and returns how many there are now; adds to *num_full what this lane has
/// seen set. The k-th first tile and the k-th last one belong to the same run, so lanes note both
/// without asking each other, in shared memory: stores of single words to global memory would take
/// most of the kernel's time.
__device__ __forceinline__ i32 list_runs(i32 first_tile, i32 words, const u32* bits, TileRun* staged,
                                         TileRun* runs, i32 count, i32* num_full, int lane) {
  i32 open = 0;  // a run whose end is still to come, as staged[0]
  for (i32 begin = 0; begin < 2 * words; begin += 32) {
    const i32 half = begin + lane;
    const u32 mine = half_word(bits, words, half);
    const u32 below = half_word(bits, words, half - 1) >> 15;
    const u32 above = half_word(bits, words, half + 1) & 1;
    u32 starts = mine & ~(mine << 1 | below), ends = mine & ~(mine >> 1 | above << 15);
    u32 total;  // at most 8 of each a half: both sums fit one word
    const u32 at = sum_below(__popc(starts) | __popc(ends) << 16, lane, &total);
    const i32 tile = first_tile + 16 * half;
    for (i32 i = open + static_cast<i32>(at & 0xffff); starts != 0; starts &= starts - 1)
      staged[i++].begin = tile + __ffs(starts) - 1;
    for (i32 i = static_cast<i32>(at >> 16); ends != 0; ends &= ends - 1)
      staged[i++].end = tile + __ffs(ends);
    *num_full += __popc(mine);
    __syncwarp();
    const i32 ended = static_cast<i32>(total >> 16);
    for (i32 i = lane; i < ended; i += 32) runs[count + i] = staged[i];
    open += static_cast<i32>(total & 0xffff) - ended;
    const i32 first_of_open = open != 0 ? staged[ended].begin : 0;
    __syncwarp();
    if (open != 0 && lane == 0) staged[0].begin = first_of_open;
    count += ended;
  }
  return count;
}

__device__ __forceinline__ void list_blocks(const ListParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = static_cast<int>(ptx::thread_index()) / 32;
  const int lane = static_cast<int>(ptx::thread_index()) % 32;
  u32* bits = reinterpret_cast<u32*>(shared + warp * kWarpBytes);
  TileRun* staged = reinterpret_cast<TileRun*>(bits + kSegmentWords);
  ptx::allow_next_kernel();
  const i32 row = static_cast<i32>(blockIdx.x) * (kListThreads / 32) + warp;
  if (row >= params.num_rows) return;
  const RowList list = row_list(params, row, lane);
  TileRun* runs = params.runs + static_cast<i64>(row) * params.run_capacity;
  PartialTile* partial = params.partial + static_cast<i64>(row) * params.partial_capacity;
  const i32 diagonal =
      (row % params.num_q_blocks + params.diagonal_offset) * params.tiles_per_block;
  i32 num_runs = 0;
  RowTiles tiles{0, 0};
  for (i32 first_word = 0; first_word < params.num_tile_words; first_word += kSegmentWords) {
    const i32 left = params.num_tile_words - first_word;
    const i32 words = left < kSegmentWords ? left : kSegmentWords;
    const i32 first_tile = 32 * first_word;
    __syncwarp();
    for (i32 word = lane; word < words; word += 32) bits[word] = 0;
    __syncwarp();
    set_bits(params, list, row, first_tile, bits, lane);
    __syncwarp();
    tiles.num_partial =
        list_partial(params, first_tile, words, diagonal, bits, partial, tiles.num_partial, lane);
    __syncwarp();
    num_runs = list_runs(first_tile, words, bits, staged, runs, num_runs, &tiles.num_full, lane);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    tiles.num_full += __shfl_xor_sync(~0u, tiles.num_full, step);
  if (lane != 0) return;
  if (tiles.num_full + tiles.num_partial == 0) {  // the kernel wants a tile: one that it hides
    partial[0] = {0, params.hidden_payload};
    tiles.num_partial = 1;
  }
  params.row_tiles[row] = tiles;
}

}  // namespace stof::lists
