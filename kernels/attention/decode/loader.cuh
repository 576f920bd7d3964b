#pragma once
// Copies key and value tiles of one sequence into a team's part of the ring.

#include "attention/decode/sequences.cuh"
#include "ptx/async_copy.cuh"

namespace stof::decode {

template <class D>
class TileLoader {
 public:
  /// `stages`: shared address of the ring; `thread`: within the team.
  __device__ TileLoader(const DecodeParams& params, u32 stages, int team, int thread)
      : params_(params), stages_(stages), team_(team), thread_(thread) {}

  /// Tiles [from, to) of the sequence's walk.
  __device__ __forceinline__ void start(const Sequence& s, i32 from, i32 to) {
    next_ = from;
    end_ = to;
    if constexpr (D::kLists) {
      keys_ = {0, 0, s.length};
      list_ = params_.tiles + params_.list_begin[s.index];
      payloads_ = params_.payloads + s.row_block * D::kRows;
    } else {
      keys_ = visible_keys(params_.window, s.length, params_.seq_q);
      span_ = tiles_of(keys_, D::kTileKeys);
    }
    k_ = static_cast<const char*>(params_.k) + 2 * s.head * params_.k_strides[1];
    v_ = static_cast<const char*>(params_.v) + 2 * s.head * params_.v_strides[1];
    if constexpr (D::kPageSize == 0) {
      k_ += 2 * s.batch * params_.k_strides[0];
      v_ += 2 * s.batch * params_.v_strides[0];
    } else {
      pages_ = params_.page_table + s.batch * params_.page_table_stride;
    }
    look_up();
  }

  /// Starts the copies of the next tile. Every call ends one group of copies, also past the last
  /// tile, so that waiting counts groups alone.
  __device__ __forceinline__ void load_next(int stage) {
    if (next_ < end_) {
      const u32 base = stages_ + stage * D::kStageBytes;
      const u32 keys = base + team_ * D::kTeamKeys * D::kPitchQk;
      const u32 values = base + D::kKeyBytes + team_ * D::kTeamKeys * D::kPitchV;
      const bool all_visible = keys_.contains_all(next_key_, next_key_ + D::kTeamKeys);
#pragma unroll 1
      for (int step = 0; step < D::kSteps; ++step) {
        i32 row = next_key_ + step * D::kStepKeys;
        i32 page = 0;
        if constexpr (D::kPageSize > 0) {
          row %= D::kPageSize;
          page = __shfl_sync(~0u, next_page_, step);
        }
        copy_step<D::kChunksQk, D::kHeadDimQk / 8>(keys + step * D::kStepKeys * D::kPitchQk,
                                                   D::kPitchQk, k_, params_.k_strides, page, row,
                                                   step, all_visible);
        copy_step<D::kChunksV, D::kHeadDimV / 8>(values + step * D::kStepKeys * D::kPitchV,
                                                 D::kPitchV, v_, params_.v_strides, page, row, step,
                                                 all_visible);
      }
      if constexpr (D::kLists) copy_payload(base + D::kKeyBytes + D::kValueBytes);
      ++next_;
      look_up();
    }
    ptx::commit_copies();
  }

  /// Where tile i of the walk begins for this team, and its payload (-1: none).
  __device__ __forceinline__ i32 first_key(i32 i, i32* payload) const {
    i32 tile;
    *payload = -1;
    if constexpr (D::kLists) {
      tile = list_[i].tile;
      *payload = list_[i].payload;
    } else {
      tile = span_.tile(i);
    }
    return tile * D::kTileKeys + team_ * D::kTeamKeys;
  }

  /// What of the sequence is visible at all.
  __device__ __forceinline__ const KeyRange& keys() const { return keys_; }

 private:
  /// Reads the next tile's list entry and pages, a whole tile before their use.
  __device__ __forceinline__ void look_up() {
    if (next_ >= end_) return;
    next_key_ = first_key(next_, &next_payload_);
    if constexpr (D::kPageSize > 0) {
      // Lane i holds the page of the team's keys 16 i and on: a page is a multiple of 16 rows.
      const int lane = static_cast<int>(threadIdx.x) & 31;
      const i32 key = next_key_ + lane * D::kStepKeys;
      next_page_ = lane < D::kSteps && key < keys_.end ? pages_[key / D::kPageSize] : 0;
    }
  }

  /// The 16 rows from `row` on: kChunks 16-byte chunks each, of which kFilled hold data and the
  /// rest zeros. Keys that no query sees arrive as zeros and are not read.
  template <int kChunks, int kFilled>
  __device__ __forceinline__ void copy_step(u32 shared, int pitch, const char* base,
                                            const i64 (&strides)[3], i32 page, i32 row, int step,
                                            bool all_visible) const {
    const char* rows = base + 2 * (row * strides[2]);
    if constexpr (D::kPageSize > 0) rows += 2 * (page * strides[0]);
    if (kChunks == kFilled && all_visible) {
      each_copy<kChunks>(2 * strides[2], [&](int r, int chunk, i64 offset) {
        ptx::copy_16(shared + r * pitch + chunk * 16, rows + offset);
      });
    } else {
      each_copy<kChunks>(2 * strides[2], [&](int r, int chunk, i64 offset) {
        const bool read = (chunk < kFilled) & keys_.contains(next_key_ + step * D::kStepKeys + r);
        ptx::copy_16(shared + r * pitch + chunk * 16, read ? rows + offset : base, read ? 16 : 0);
      });
    }
  }

  /// Calls copy(row, chunk, offset of both in bytes) for this thread's share of 16 rows.
  template <int kChunks, class Copy>
  __device__ __forceinline__ void each_copy(i64 row_bytes, const Copy& copy) const {
    constexpr int kCopies = D::kStepKeys * kChunks;
    constexpr int kTurns = (kCopies + D::kTeamThreads - 1) / D::kTeamThreads;
    if constexpr (D::kTeamThreads % kChunks == 0) {  // a thread keeps its chunk
      constexpr int kRowsATurn = D::kTeamThreads / kChunks;
      const int row = thread_ / kChunks, chunk = thread_ % kChunks;
      i64 offset = row * row_bytes + chunk * 16;
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        if (kCopies % D::kTeamThreads == 0 || row < D::kStepKeys)
          copy(row + i * kRowsATurn, chunk, offset);
        offset += kRowsATurn * row_bytes;
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < kTurns; ++i) {
        const int index = thread_ + i * D::kTeamThreads;
        const int row = index / kChunks, chunk = index - row * kChunks;
        if (kCopies % D::kTeamThreads == 0 || index < kCopies)
          copy(row, chunk, row * row_bytes + chunk * 16);
      }
    }
  }

  __device__ __forceinline__ void copy_payload(u32 shared) const {
    if (next_payload_ < 0) return;
    const u64* source =
        payloads_ + static_cast<i64>(next_payload_) * (params_.row_blocks * D::kRows);
    for (int i = thread_; i < D::kRows / 2; i += D::kTeamThreads)
      ptx::copy_16(shared + team_ * D::kRows * 8 + i * 16, source + 2 * i);
  }

  const DecodeParams& params_;
  const u32 stages_;
  const int team_, thread_;
  const char *k_ = nullptr, *v_ = nullptr;
  const i32* pages_ = nullptr;
  const ListedTile* list_ = nullptr;
  const u64* payloads_ = nullptr;
  KeyRange keys_{};
  TileSpan span_{};
  i32 next_ = 0, end_ = 0, next_key_ = 0, next_payload_ = -1, next_page_ = 0;
};

/// Copies a sequence's query rows (all threads of the block); rows past the last are zeros.
template <class D>
__device__ __forceinline__ void load_query(const DecodeParams& params, const Sequence& s,
                                           u32 shared) {
  const char* base = static_cast<const char*>(params.q) + 2 * s.batch * params.q_strides[0];
  for (int copy = static_cast<int>(threadIdx.x); copy < D::kRows * D::kChunksQk;
       copy += D::kThreads) {
    const int row = copy / D::kChunksQk, chunk = copy - row * D::kChunksQk;
    const i32 packed = s.row_block * D::kRows + row;
    const i32 head = packed / params.seq_q, query = packed - head * params.seq_q;
    const bool inside = packed < params.num_rows && chunk < D::kHeadDimQk / 8;
    const char* source = base + 2 * ((s.head * params.group + head) * params.q_strides[1] +
                                     query * params.q_strides[2]);
    ptx::copy_16(shared + row * D::kPitchQk + chunk * 16, inside ? source + chunk * 16 : base,
                 inside ? 16 : 0);
  }
}

}  // namespace stof::decode
