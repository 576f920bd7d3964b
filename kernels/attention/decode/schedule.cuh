#pragma once
// Which key tiles a sequence walks and which block walks them: whole-number arithmetic on lengths
// that only the device knows. Plain C++, so that tests run it on the host.

#include "ptx/types.cuh"

namespace stof::decode {

/// What a query sees beside the cached length; relative to its own position, inclusive.
struct Window {
  i32 left;         // keys before the query; kUnbounded: all
  i32 right;        // keys after it; 0: causal; kUnbounded: all
  i32 sink_tokens;  // the first keys of the sequence, seen from everywhere (as far as `right`
                    // allows)
  static constexpr i32 kUnbounded = 0x7fffffff;
};

/// Keys [first, end) and the first `sinks`: what at least one query of a sequence sees.
struct KeyRange {
  i32 sinks;
  i32 first;
  i32 end;
  bool contains(i32 key) const { return (key < end) & ((key >= first) | (key < sinks)); }
  /// Whether all keys [from, to) are contained.
  bool contains_all(i32 from, i32 to) const {
    return (to <= end) & ((from >= first) | (to <= sinks));
  }
};

/// Position of the first query: the last of seq_q queries stands at the last key. Negative where
/// there are more queries than keys.
inline i32 first_position(i32 length, i32 seq_q) { return length - seq_q; }

/// The last key that the query at `position` sees, -1 for none.
inline i32 last_key(const Window& window, i32 position, i32 length) {
  const i64 last = static_cast<i64>(position) + window.right;
  return last < length - 1 ? (last < 0 ? -1 : static_cast<i32>(last)) : length - 1;
}

/// The first key that the query at `position` sees by its window.
inline i32 first_key(const Window& window, i32 position) {
  if (window.left == Window::kUnbounded) return 0;
  return position > window.left ? position - window.left : 0;
}

inline KeyRange visible_keys(const Window& window, i32 length, i32 seq_q) {
  const i32 position = first_position(length, seq_q);
  const i32 end = last_key(window, position + seq_q - 1, length) + 1;
  const i32 first = first_key(window, position);
  const i32 sinks = window.sink_tokens < end ? window.sink_tokens : end;
  return {sinks, first < end ? first : end, end};
}

/// Key tiles of a sequence in the order they are walked: sinks first, then the window's.
struct TileSpan {
  i32 sink_tiles;
  i32 window_begin;  // first tile of the window that is not among the sinks'
  i32 count;         // at least 1: a sequence that sees nothing still has zeros to store
  i32 tile(i32 i) const { return i < sink_tiles ? i : i - sink_tiles + window_begin; }
};

inline TileSpan tiles_of(const KeyRange& keys, i32 tile_keys) {
  const i32 sink_tiles = (keys.sinks + tile_keys - 1) / tile_keys;
  const i32 first = keys.first / tile_keys;
  const i32 begin = first > sink_tiles ? first : sink_tiles;
  const i32 end = static_cast<i32>((static_cast<i64>(keys.end) + tile_keys - 1) / tile_keys);
  const i32 count = sink_tiles + (end > begin ? end - begin : 0);
  return {sink_tiles, begin, count > 0 ? count : 1};
}

/// All tiles of all sequences in one row, cut into equal pieces, one a block; a block may end one
/// sequence and start the next. Follows from the lengths alone, so every run gives the same bits.
struct Partition {
  i64 total;
  i32 blocks;

  i64 begin(i32 block) const { return block * total / blocks; }
  /// The block whose piece holds the tile.
  i32 owner(i64 tile) const { return static_cast<i32>(((tile + 1) * blocks - 1) / total); }
};

/// `resident` blocks fill the GPU once. More, smaller pieces even out differences between
/// multiprocessors, but each must be worth its start. No piece is empty: all blocks between the
/// first and the last owner of a sequence hold a part of it.
inline Partition partition_tiles(i64 total, i32 resident, i32 max_waves) {
  constexpr i32 kTilesWorthABlock = 32;
  const i64 waves = total / (static_cast<i64>(kTilesWorthABlock) * resident);
  const i64 blocks = resident * (waves < 1 ? 1 : waves < max_waves ? waves : max_waves);
  return {total, static_cast<i32>(blocks < total ? blocks : total)};
}

/// Where a block stores its part of a sequence it does not hold whole: one slot for the sequence it
/// continues, one for the sequence it starts and leaves unfinished.
inline i64 partial_slot(i32 block, bool starts_sequence) {
  return 2 * static_cast<i64>(block) + (starts_sequence ? 1 : 0);
}

}  // namespace stof::decode
