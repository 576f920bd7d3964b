#pragma once
// Row-wise masked attention: a warp, or a few, own sixteen query rows and load only keys that one
// of these rows sees. README.md beside this has roofline and schedule.

#include "attention/rowwise/config.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/barrier.cuh"
#include "ptx/grid.cuh"
#include "ptx/shared.cuh"

namespace stof::rowwise {

/// Copies a warp's chunks (every kWarps-th of the item) into its own ring.
template <class D>
class ChunkLoader {
 public:
  __device__ ChunkLoader(const RowwiseParams& params, const RowItem& item, u32 ring, int warp)
      : params_(params), ring_(ring), next_(item.chunk_begin + warp),
        end_(item.chunk_begin + item.num_chunks) {
    const i32 head = item.head / params.group;
    k_ = static_cast<const char*>(params.k) +
         2 * (item.batch * params.k_strides[0] + head * params.k_strides[1]);
    v_ = static_cast<const char*>(params.v) +
         2 * (item.batch * params.v_strides[0] + head * params.v_strides[1]);
    coming_ = chunk_at(next_);
    look_up();
  }

  /// Starts the copies of the next chunk. Every call ends one group, also past the last chunk.
  __device__ __forceinline__ void load_next(int stage) {
    if (next_ < end_) {
      const u32 base = ring_ + stage * D::kStageBytes;
      copy_rows<D::kPiecesQk, D::kHeadDimQk / 8>(base, D::kPitchQk, k_, params_.k_strides[2]);
      copy_rows<D::kPiecesV, D::kHeadDimV / 8>(base + D::kKeyBytes, D::kPitchV, v_,
                                               params_.v_strides[2]);
      if (bits_ >= 0 && lane() < 2)
        ptx::copy_16(base + D::kKeyBytes + D::kValueBytes + 16 * lane(),
                     params_.bits + 8 * static_cast<i64>(bits_) + 4 * lane());
      masked_ = (masked_ & ~(1u << stage)) | ((bits_ >= 0 ? 1u : 0u) << stage);
      next_ += D::kWarps;
      look_up();
    }
    ptx::commit_copies();
  }

  /// Whether the chunk in the stage has bits.
  __device__ __forceinline__ bool masked(int stage) const { return masked_ >> stage & 1; }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ __forceinline__ KeyChunk chunk_at(i32 index) const {
    return index < end_ ? params_.chunks[index] : KeyChunk{};
  }

  /// The next chunk's keys, a whole chunk before their use; its record came one chunk earlier.
  __device__ __forceinline__ void look_up() {
    if (next_ >= end_) return;
    const KeyChunk chunk = coming_;
    coming_ = chunk_at(next_ + D::kWarps);
    bits_ = chunk.bits;
    key_ = chunk.first + lane();
    if (chunk.columns >= 0)
      key_ = params_.columns[static_cast<i64>(chunk.columns) * D::kChunkKeys + (lane() & 15)];
    if (key_ >= params_.seq_kv) key_ = -1;
  }

  /// kPieces pieces of 16 bytes a key, of which kFilled hold data and the rest zeros.
  template <int kPieces, int kFilled>
  __device__ __forceinline__ void copy_rows(u32 shared, int pitch, const char* base,
                                            i64 stride) const {
    constexpr int kCopies = D::kChunkKeys * kPieces;
#pragma unroll 4
    for (int i = 0; i < (kCopies + 31) / 32; ++i) {
      const int copy = lane() + 32 * i;
      const int row = copy / kPieces, piece = copy - row * kPieces;
      const i32 key = __shfl_sync(~0u, key_, row);  // past the last copy: any lane's, not used
      const bool filled = key >= 0 && (kPieces == kFilled || piece < kFilled);
      if (kCopies % 32 == 0 || copy < kCopies)
        ptx::copy_16(shared + row * pitch + piece * 16,
                     filled ? base + 2 * (key * stride) + piece * 16 : base, filled ? 16 : 0);
    }
  }

  const RowwiseParams& params_;
  const u32 ring_;
  const char *k_, *v_;
  i32 next_;
  const i32 end_;
  KeyChunk coming_;  // the record after the one looked up
  i32 key_ = -1;     // lane i: the next chunk's key i
  i32 bits_ = -1;
  u32 masked_ = 0;
};

template <class D>
__device__ __forceinline__ void load_query(const RowwiseParams& params, const RowItem& item,
                                           u32 shared) {
  const char* base = static_cast<const char*>(params.q) +
                     2 * (item.batch * params.q_strides[0] + item.head * params.q_strides[1]);
  for (int copy = static_cast<int>(threadIdx.x); copy < D::kRows * D::kPiecesQk;
       copy += D::kThreads) {
    const int row = copy / D::kPiecesQk, piece = copy - row * D::kPiecesQk;
    const bool inside = item.q_row + row < params.seq_q && piece < D::kHeadDimQk / 8;
    ptx::copy_16(
        shared + row * D::kPitchQk + piece * 16,
        inside ? base + 2 * ((item.q_row + row) * params.q_strides[2]) + piece * 16 : base,
        inside ? 16 : 0);
  }
}

template <class D>
__device__ __forceinline__ void sync_rows() {
  if constexpr (D::kWarps == 1)
    __syncwarp();
  else
    __syncthreads();
}

/// Merges the warps' rows in warp order, normalises and stores them.
template <class D>
__device__ __forceinline__ void store_rows(const RowwiseParams& params, const RowItem& item,
                                           const float* merge) {
  const float2* sums =
      reinterpret_cast<const float2*>(merge + D::kWarps * D::kRows * D::kMergePitch);
  unsigned short* out = static_cast<unsigned short*>(params.out) +
                        item.batch * params.out_strides[0] + item.head * params.out_strides[1];
  for (int piece = static_cast<int>(threadIdx.x); piece < D::kRows * D::kPiecesV;
       piece += D::kThreads) {
    const int row = piece / D::kPiecesV, column = 8 * (piece - row * D::kPiecesV);
    const i32 query = item.q_row + row;
    if (query >= params.seq_q) break;  // rows ascend with the piece
    const MergedPiece<D::kWarps> merged(merge + row * D::kMergePitch + column, sums + row,
                                        D::kMergePitch, D::kRows);
    const bool empty = merged.l == 0.0f;  // a row that saw nothing: zeros; NaN stays NaN
    const float factor = empty ? 0.0f : 1.0f / merged.l;
    *reinterpret_cast<uint4*>(out + query * params.out_strides[2] + column) =
        merged.template pack<typename D::Element>(factor);
    if (column == 0 && params.lse != nullptr)
      params.lse[(static_cast<i64>(item.batch) * params.num_heads_q + item.head) * params.seq_q +
                 query] =
          empty ? -ptx::infinity() : (merged.m + ptx::log2(merged.l)) * kLn2;
  }
}

template <class D>
__device__ __forceinline__ void rowwise_kernel(const RowwiseParams& params) {
  extern __shared__ __align__(16) unsigned char shared[];
  const u32 query = ptx::shared_address(shared);
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const u32 ring = query + D::kQueryBytes + warp * D::kStages * D::kStageBytes;
  if constexpr (D::kEarlyStart) ptx::allow_next_kernel();

  // Lists belong to the plan and are read while the previous kernel may still run.
  const RowItem item = params.items[blockIdx.x];
  ChunkLoader<D> loader(params, item, ring, warp);
  if constexpr (D::kEarlyStart) ptx::wait_for_previous_kernel();

  load_query<D>(params, item, query);
#pragma unroll
  for (int stage = 0; stage < D::kStages - 1; ++stage) loader.load_next(stage);
  ptx::wait_copies<D::kStages - 2>();  // the query rows came with the first chunk
  sync_rows<D>();
  typename D::Rows rows(query);
  rows.start();
  int stage = 0;
  for (i32 i = warp; i < item.num_chunks; i += D::kWarps) {
    ptx::wait_copies<D::kStages - 2>();
    __syncwarp();  // this chunk is there, and no lane reads the previous one any more
    const bool masked = loader.masked(stage);
    loader.load_next(stage == 0 ? D::kStages - 1 : stage - 1);
    const u32 keys = ring + stage * D::kStageBytes;
    typename D::Rows::Scores scores;
    rows.score(scores, keys, params.scale, params.softcap);
    if (masked) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const u32 bits = ptx::load_shared_u16(keys + D::kKeyBytes + D::kValueBytes +
                                              2 * (8 * r + (lane >> 2)));
        D::Rows::hide_by_bits(scores[0], r, bits >> (2 * (lane & 3)));
      }
    }
    rows.add(scores, keys + D::kKeyBytes);
    stage = stage + 1 == D::kStages ? 0 : stage + 1;
  }
  ptx::wait_copies<0>();
  sync_rows<D>();
  float* merge = reinterpret_cast<float*>(shared + D::kQueryBytes);
  rows.put(merge + warp * D::kRows * D::kMergePitch,
           reinterpret_cast<float2*>(merge + D::kWarps * D::kRows * D::kMergePitch) +
               warp * D::kRows);
  sync_rows<D>();
  store_rows<D>(params, item, merge);
}

}  // namespace stof::rowwise
