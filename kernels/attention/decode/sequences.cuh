#pragma once
// Finding a block's place among all sequences' tiles. All lanes of a warp call these together.

#include "attention/decode/config.cuh"

namespace stof::decode {

/// One key/value head of one batch entry (and one piece of its rows), and where its tiles lie in
/// the row of all tiles.
struct Sequence {
  i32 index;  // (batch * num_heads_kv + head) * row_blocks + piece
  i32 batch;
  i32 head;
  i32 row_block;
  i32 length;  // cached keys
  i64 begin;   // tiles of earlier sequences
  i32 count;   // its own tiles
};

template <class D>
class Sequences {
 public:
  /// Reads the first 32 lengths, one a lane: for most batches the only ones.
  __device__ explicit Sequences(const DecodeParams& params)
      : params_(params), per_batch_(params.num_heads_kv * params.row_blocks) {
    if constexpr (!D::kLists) {
      first_length_ = read_length(lane() < params.batch ? lane() : 0);
      first_sum_ = inclusive_sum(lane() < params.batch ? tiles_for(first_length_) : 0);
    }
  }

  __device__ __forceinline__ i32 length(i32 batch) const {
    if (D::kLists || batch >= 32) return read_length(batch);
    return __shfl_sync(~0u, first_length_, batch);
  }

  __device__ __forceinline__ TileSpan span(i32 length) const {
    return tiles_of(visible_keys(params_.window, length, params_.seq_q), D::kTileKeys);
  }

  __device__ __forceinline__ i64 total() const {
    if constexpr (D::kLists) return params_.sequence_begin[params_.batch * per_batch_];
    return tiles_before(params_.batch);
  }

  __device__ __forceinline__ Sequence at(i32 index) const {
    Sequence s = place(index);
    if constexpr (D::kLists) {
      s.begin = params_.sequence_begin[index];
      s.count = static_cast<i32>(params_.sequence_begin[index + 1] - s.begin);
    } else {
      s.count = span(s.length).count;
      s.begin = tiles_before(s.batch) + static_cast<i64>(index - s.batch * per_batch_) * s.count;
    }
    return s;
  }

  /// The sequence that holds a tile.
  __device__ __forceinline__ Sequence containing(i64 tile) const {
    if constexpr (D::kLists) {
      i32 low = 0, high = params_.batch * per_batch_ - 1;
      while (low < high) {
        const i32 middle = (low + high + 1) / 2;
        if (params_.sequence_begin[middle] <= tile)
          low = middle;
        else
          high = middle - 1;
      }
      return at(low);
    } else {
      i64 before = 0, sum = first_sum_;
      i32 batch = 0;
      for (;;) {
        const u32 past = __ballot_sync(~0u, before + sum > tile);
        if (past != 0) {
          const int first = __ffs(static_cast<int>(past)) - 1;
          const i64 through = __shfl_sync(~0u, sum, first > 0 ? first - 1 : 0);
          if (first > 0) before += through;
          batch += first;
          break;
        }
        before += __shfl_sync(~0u, sum, 31);
        batch += 32;
        const i32 mine = batch + lane();
        sum = inclusive_sum(mine < params_.batch ? tiles_for(read_length(mine)) : 0);
      }
      const i32 count = span(length(batch)).count;
      const i32 within = static_cast<i32>((tile - before) / count);
      Sequence s = place(batch * per_batch_ + within);
      s.count = count;
      s.begin = before + static_cast<i64>(within) * count;
      return s;
    }
  }

  __device__ __forceinline__ Sequence after(const Sequence& previous) const {
    Sequence s = place(previous.index + 1);
    s.begin = previous.begin + previous.count;
    if constexpr (D::kLists)
      s.count = static_cast<i32>(params_.sequence_begin[s.index + 1] - s.begin);
    else
      s.count = span(s.length).count;
    return s;
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ __forceinline__ Sequence place(i32 index) const {
    Sequence s{};
    s.index = index;
    s.batch = index / per_batch_;
    const i32 rest = index - s.batch * per_batch_;
    s.head = rest / params_.row_blocks;
    s.row_block = rest - s.head * params_.row_blocks;
    s.length = length(s.batch);
    return s;
  }

  __device__ __forceinline__ i32 read_length(i32 batch) const {
    if (params_.lengths == nullptr) return params_.seq_kv;
    const i32 length = params_.lengths[batch];
    return length < 0 ? 0 : length < params_.seq_kv ? length : params_.seq_kv;
  }

  __device__ __forceinline__ i64 tiles_for(i32 length) const {
    return static_cast<i64>(span(length).count) * per_batch_;
  }

  /// Of batch entries before `batch`, 0 .. params.batch.
  __device__ __forceinline__ i64 tiles_before(i32 batch) const {
    const i64 among_first =
        __shfl_sync(~0u, first_sum_, batch <= 32 ? (batch > 0 ? batch - 1 : 0) : 31);
    if (batch <= 32) return batch > 0 ? among_first : 0;
    i64 sum = 0;
    for (i32 b = 32 + lane(); b < batch; b += 32) sum += tiles_for(read_length(b));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return among_first + sum;
  }

  static __device__ __forceinline__ i64 inclusive_sum(i64 value) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const i64 other = __shfl_up_sync(~0u, value, offset);
      if (lane() >= offset) value += other;
    }
    return value;
  }

  const DecodeParams& params_;
  const i32 per_batch_;
  i32 first_length_ = 0;  // of batch entry `lane`
  i64 first_sum_ = 0;     // tiles of batch entries 0 .. lane
};

}  // namespace stof::decode
