#pragma once
// Attention of a few new queries against a key/value cache. README.md beside this has roofline and
// schedule.

#include "attention/decode/finish.cuh"
#include "attention/decode/rows.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/shared.cuh"

namespace stof::decode {

/// Waits for the other warps of the team. Teams of one warp or of the whole block need no named
/// barrier.
template <class D>
__device__ __forceinline__ void sync_team(int team) {
  if constexpr (D::kRowWarps == 1)
    __syncwarp();
  else if constexpr (D::kTeams == 1)
    __syncthreads();
  else
    ptx::sync_some(1 + team, D::kTeamThreads);
}

/// Sends for a sequence's query and its first tiles; query and first tile are there afterwards. With
/// kEarlyKeys tiles before the newest keys are under way before the kernel before has ended, and all
/// are there afterwards; `waits`: it has not yet been waited for.
template <class D>
__device__ __forceinline__ void fill_ring(const DecodeParams& params, const Sequence& s, i32 from,
                                          u32 query, TileLoader<D>& loader, bool& waits) {
  const auto wait = [&] {
    if (!waits) return;
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
    waits = false;
  };
  if constexpr (D::kEarlyKeys) {
#pragma unroll 1
    for (int stage = 0; stage < D::kStages - 1; ++stage) {
      i32 payload;
      const i32 tile = loader.first_key(from + stage, &payload) / D::kTileKeys;
      if ((tile + 1) * D::kTileKeys > first_position(s.length, params.seq_q)) wait();
      loader.load_next(stage);
    }
    wait();
    load_query<D>(params, s, query);
    ptx::commit_copies();
    ptx::wait_copies<0>();
  } else {
    load_query<D>(params, s, query);
#pragma unroll 1
    for (int stage = 0; stage < D::kStages - 1; ++stage) loader.load_next(stage);
    ptx::wait_copies<D::kStages - 2>();  // the query rows came with the first tile
  }
}

template <class D>
__device__ __forceinline__ void decode_kernel(const DecodeParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  const u32 query = ptx::shared_address(shared), stages = query + D::kQueryBytes;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = __shfl_sync(~0u, thread / 32, 0);
  const int team = warp / D::kRowWarps, member = warp % D::kRowWarps;
  bool waits = D::kEarlyKeys;
  if constexpr (D::kEarlyStart && !D::kEarlyKeys) {
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
  }

  const Sequences<D> sequences(params);
  const Partition partition =
      partition_tiles(sequences.total(), params.resident_blocks, params.max_waves);
  const i32 block = static_cast<i32>(blockIdx.x);
  if (block >= partition.blocks) return;
  i64 tile = partition.begin(block);
  const i64 end = partition.begin(block + 1);
  if (tile >= end) return;

  TileLoader<D> loader(params, stages, team, member * 32 + (thread & 31));
  DecodeRows<D> rows(params, query, stages, team, member * 16 * D::kRowTiles);
  Sequence s = sequences.containing(tile);
  for (;;) {
    const i32 from = static_cast<i32>(tile - s.begin);
    const i32 to = static_cast<i32>(min(static_cast<i64>(s.count), end - s.begin));
    loader.start(s, from, to);
    fill_ring<D>(params, s, from, query, loader, waits);
    __syncthreads();
    rows.start(s);
    int stage = 0;
    for (i32 i = from; i < to; ++i) {
      ptx::wait_copies<D::kStages - 2>();
      sync_team<D>(team);  // tile i is there, and nobody reads tile i - 1 any more
      loader.load_next(stage == 0 ? D::kStages - 1 : stage - 1);
      i32 payload;
      const i32 key = loader.first_key(i, &payload);
      rows.add_tile(stage, key, payload, loader.keys().sinks);
      stage = stage + 1 == D::kStages ? 0 : stage + 1;
    }
    ptx::wait_copies<0>();
    __syncthreads();
    float* merge = reinterpret_cast<float*>(shared + D::kQueryBytes);
    rows.put(merge);
    __syncthreads();
    const bool whole = from == 0 && to == s.count;
    store_rows<D>(params, s, merge, whole, partial_slot(block, from == 0));
    if constexpr (D::kMerges) {
      if (!whole) {
        const i32 first = partition.owner(s.begin);
        const i32 parts = partition.owner(s.begin + s.count - 1) - first + 1;
        // The queries are not needed any more.
        if (is_last_to_arrive(&params.arrivals[s.index], parts, reinterpret_cast<u32*>(shared)))
          merge_parts<D>(params, s, first, parts);
      }
    }
    tile = s.begin + to;
    if (tile >= end) return;
    __syncthreads();  // the ring is free for the next sequence
    s = sequences.after(s);
  }
}

}  // namespace stof::decode
