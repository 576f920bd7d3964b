#pragma once
// A boolean tensor in device memory into a plan: which groups of 16 keys show and hide something,
// and, once the host has picked tiles, the payloads of partial ones.

#include "ptx/thread.cuh"
#include "ptx/types.cuh"

namespace stof::dense {

/// A partial tile.
struct Tile {
  i32 row;  // pattern * query_tiles + query tile; patterns are batch * heads + head, over what is not
            // broadcast
  i32 key_tile;
};

struct DenseParams {
  const unsigned char* visible;  // bool [batch, heads, seq_q, seq_kv]
  i64 strides[4];                // bytes; 0: broadcast
  u32* shown;                    // [patterns][strips][words]: bit g of word w is set where a row of
  u32* hidden;                   // the strip's 64 sees (does not see) a key of group 32 * w + g
  const Tile* tiles;             // [num_tiles]
  u32* payloads;                 // [num_tiles][slabs][payload_words][128 threads]
  i32 heads;                     // of patterns
  i32 seq_q;
  i32 seq_kv;
  i32 strips;
  i32 words;
  i32 num_words;                 // patterns * strips * words
  i32 wide_loads;                // unit key stride; address and other strides divisible by 16
  i32 query_tiles;
  i32 slabs;                     // of 64 rows a query tile
  i32 tile_kv;                   // a multiple of 16
  i32 payload_words;             // a thread's words of a slab
  i32 padding;
};
static_assert(sizeof(DenseParams) == 120, "dense_pass.cc asserts the same");

constexpr int kDenseThreads = 128;
constexpr int kGroupKeys = 16, kStripRows = 64;
constexpr u32 kByteTops = 0x80808080u;

/// 16 keys of a row, one a byte: the top bit says what is shown, and what exists at all.
struct Group {
  u32 shown[4];
  u32 exists[4];
};

/// Top bits of the bytes that are not zero.
__device__ __forceinline__ u32 nonzero_bytes(u32 word) {
  return (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & kByteTops;
}

/// Keys [key, key + 16) of a row, of which those below `end` exist.
__device__ __forceinline__ Group load_group(const DenseParams& params, const unsigned char* row,
                                            i32 key, i32 end) {
  Group group;
  if (params.wide_loads && key + kGroupKeys <= end) {
    const uint4 bytes = *reinterpret_cast<const uint4*>(row + key);
    group.shown[0] = nonzero_bytes(bytes.x);
    group.shown[1] = nonzero_bytes(bytes.y);
    group.shown[2] = nonzero_bytes(bytes.z);
    group.shown[3] = nonzero_bytes(bytes.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) group.exists[i] = kByteTops;
    return group;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    group.shown[i] = group.exists[i] = 0;
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const i32 at = key + 4 * i + byte;
      if (at >= end) continue;
      const u32 top = 0x80u << (8 * byte);
      group.exists[i] |= top;
      if (row[at * params.strides[3]] != 0) group.shown[i] |= top;
    }
  }
  return group;
}

__device__ __forceinline__ const unsigned char* pattern_rows(const DenseParams& params,
                                                             i32 pattern) {
  const i32 batch = pattern / params.heads, head = pattern - batch * params.heads;
  return params.visible + batch * params.strides[0] + head * params.strides[1];
}

/// One warp a word: 64 rows of 512 keys. Stops where every group is known to show and to hide.
__device__ __forceinline__ void classify_groups(const DenseParams& params) {
  const int thread = static_cast<int>(ptx::thread_index()), lane = thread % 32;
  const i32 index = static_cast<i32>(blockIdx.x) * (kDenseThreads / 32) + thread / 32;
  if (index >= params.num_words) return;
  const i32 strip_index = index / params.words, word = index - strip_index * params.words;
  const i32 pattern = strip_index / params.strips, strip = strip_index - pattern * params.strips;
  const i32 key = (32 * word + lane) * kGroupKeys, begin = strip * kStripRows;
  const i32 rows = params.seq_q - begin < kStripRows ? params.seq_q - begin : kStripRows;
  const unsigned char* row = pattern_rows(params, pattern) + begin * params.strides[2];
  constexpr int kAtOnce = 8;
  u32 shown = 0, hidden = 0;
  for (i32 i = 0; i < rows; i += kAtOnce) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const i32 at = i + j < rows ? i + j : rows - 1;  // the last row twice changes nothing
      const Group group = load_group(params, row + at * params.strides[2], key, params.seq_kv);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        shown |= group.shown[k];
        hidden |= group.exists[k] & ~group.shown[k];
      }
    }
    const bool known = key >= params.seq_kv || (shown != 0 && hidden != 0);
    if (__ballot_sync(~0u, !known) == 0) break;
  }
  const u32 any = __ballot_sync(~0u, shown != 0), some = __ballot_sync(~0u, hidden != 0);
  if (lane == 0) {
    params.shown[index] = any;
    params.hidden[index] = some;
  }
}

/// The top bits of 16 bytes as 16 bits.
__device__ __forceinline__ u32 gather_tops(const u32 (&words)[4]) {
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)  // the product moves bits 0, 8, 16, 24 to 28..31; no two meet
    bits |= ((words[i] >> 7) * 0x10204080u >> 28) << (4 * i);
  return bits;
}

/// Bits 0 and 1 of each byte, to bits 0 and 1 of each nibble of 32.
__device__ __forceinline__ u32 bytes_to_nibbles(u64 x) {
  x = (x | x >> 4) & 0x00ff00ff00ff00ffull;
  x = (x | x >> 8) & 0x0000ffff0000ffffull;
  return static_cast<u32>(x | x >> 16);
}

/// One thread block a tile; a thread fills its own words. The four lanes that hold a row's scores
/// each load 16 of 64 keys and hand the others their bits.
__device__ __forceinline__ void fill_payloads(const DenseParams& params) {
  const int thread = static_cast<int>(ptx::thread_index()), lane = thread % 32;
  const int quarter = lane % 4;
  const Tile tile = params.tiles[blockIdx.x];
  const i32 pattern = tile.row / params.query_tiles;
  const i32 first_row = (tile.row - pattern * params.query_tiles) * params.slabs * 64;
  const unsigned char* rows = pattern_rows(params, pattern);
  const i32 first_key = tile.key_tile * params.tile_kv;
  const i32 tile_end = first_key + params.tile_kv;
  const i32 end = tile_end < params.seq_kv ? tile_end : params.seq_kv;
  u32* out = params.payloads +
             static_cast<i64>(blockIdx.x) * params.slabs * params.payload_words * 128 + thread;
  for (i32 slab = 0; slab < params.slabs; ++slab)
    for (i32 word = 0; word < params.payload_words; ++word) {
      u32 bits = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const i32 row = first_row + 64 * slab + thread / 32 * 16 + lane / 4 + 8 * half;
        const i32 key = first_key + 64 * word + kGroupKeys * quarter;
        u64 shown = 0;
        if (row < params.seq_q && key < end)
          shown = static_cast<u64>(gather_tops(
                      load_group(params, rows + row * params.strides[2], key, end).shown))
                  << (kGroupKeys * quarter);
        shown |= __shfl_xor_sync(~0u, shown, 1);
        shown |= __shfl_xor_sync(~0u, shown, 2);
        bits |= bytes_to_nibbles(shown >> (2 * quarter) & 0x0303030303030303ull) << (2 * half);
      }
      out[(slab * params.payload_words + word) * 128] = bits;
    }
}

}  // namespace stof::dense
