#pragma once
// Normalise and store one warpgroup's 64 rows.

#include "attention/rows.cuh"
#include "attention/softmax.cuh"

namespace stof {

/// Transposes a 4x4 matrix of words held by a quad: afterwards lane c has word c of every lane.
__device__ __forceinline__ void transpose_quad(u32 (&words)[4], int lane_in_quad) {
  const bool odd = lane_in_quad & 1, high = lane_in_quad & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 got = __shfl_xor_sync(~0u, odd ? words[i] : words[i + 1], 1);
    (odd ? words[i] : words[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 got = __shfl_xor_sync(~0u, high ? words[i] : words[i + 2], 2);
    (high ? words[i] : words[i + 2]) = got;
  }
}

/// How much of the row already stored and of the new one goes into the merged row.
struct MergeWeights {
  float stored, fresh;
};

/// Merges (stored output, stored LSE) with (fresh output, m, sum) over disjoint keys; both LSEs may
/// be -inf.
__device__ __forceinline__ MergeWeights merge_weights(float stored_lse2, float fresh_lse2, float* merged_lse2) {
  const float top = fmaxf(stored_lse2, fresh_lse2);
  if (top == -ptx::infinity()) {
    *merged_lse2 = top;
    return {0.0f, 0.0f};
  }
  const float stored = ptx::exp2(stored_lse2 - top), fresh = ptx::exp2(fresh_lse2 - top);
  *merged_lse2 = top + ptx::log2(stored + fresh);
  const float inverse = 1.0f / (stored + fresh);
  return {stored * inverse, fresh * inverse};
}

/// The accumulators of a query tile that one block computed alone.
template <class D>
struct OwnAccumulators {
  const float (&out)[D::kOutRegisters];
  template <int kCount>
  __device__ __forceinline__ void get(int first, float (&chunk)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) chunk[i] = out[first + i];
  }
};

/// The two rows a thread stores, from first_column on, and with Config::kMerge what an earlier pass
/// left there. The thread that has column 0 stores the LSE.
template <class D>
class OutputRows {
 public:
  /// first_column: of the accumulators, where warpgroups divide the columns.
  __device__ __forceinline__ void locate(const AttentionParams& params, const WorkRecord& record,
                                         const Sequence& sequence, int warpgroup,
                                         int first_column = 0) {
    first_column_ = first_column;
    const ThreadRows<D> rows(record, warpgroup);
    const i32 batch = D::kVarlen ? 0 : record.batch;
    if constexpr (D::kSink) {
      constexpr float kLog2e = 1.44269504088896f;
      sink2_ = params.sink[rows.head * params.sink_stride] * kLog2e;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const i32 token = query_token<D>(params, rows.position[r]);
      inside_[r] = D::kGridOrder ? token >= 0 : rows.position[r] < sequence.seq_q;
      const i32 row = sequence.q_begin + token;
      const i64 lse_row =
          (static_cast<i64>(batch) * params.num_heads_q + rows.head) * params.seq_q + row;
      const bool has_lse = params.lse != nullptr && inside_[r] && first_column == 0;
      lse_[r] = has_lse ? params.lse + lse_row : nullptr;
      out_[r] = static_cast<unsigned short*>(params.out) + batch * params.out_batch_stride +
                rows.head * params.out_head_stride + row * params.out_row_stride + first_column;
    }
  }

  /// Starts the loads of the stored rows; call it while matrix instructions are in flight, because
  /// the values are wanted right after them.
  __device__ __forceinline__ void fetch() {
    if constexpr (D::kMerge) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        stored_lse2_[r] = -ptx::infinity();
        if (!inside_[r]) continue;
        constexpr float kLog2e = 1.44269504088896f;
        stored_lse2_[r] = *lse_[r] * kLog2e;
#pragma unroll
        for (int i = 0; i < kWide; ++i) stored_[r][i] = *wide(r, i);
#pragma unroll
        for (int i = 0; i < kNarrow; ++i)
          if (is_stored(4 * kWide + i)) stored_narrow_[r][i] = load_pair(narrow(r, i));
      }
    }
  }

  /// `accumulators.get(first, chunk)` gives the thread's output registers.
  template <class Accumulators>
  __device__ __forceinline__ void store(const Accumulators& accumulators, const SoftmaxState& state,
                                        float scale_log2) const {
    constexpr float kLn2 = 0.693147180559945f;
    float fresh[2], stored[2] = {0.0f, 0.0f};
    bool empty[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(state.l[r]);
      empty[r] = sum == 0.0f;  // a row that saw nothing; NaN stays NaN
      fresh[r] = empty[r] ? 0.0f : 1.0f / sum;
      float lse2 = empty[r] ? -ptx::infinity() : state.m[r] * scale_log2 + ptx::log2(sum);
      if constexpr (D::kMerge) {
        const MergeWeights weights = merge_weights(stored_lse2_[r], lse2, &lse2);
        fresh[r] *= weights.fresh;
        stored[r] = weights.stored;
      }
      if constexpr (D::kSink) {  // a state of its own with value 0; rows that see nothing stay so
        if (lse2 != -ptx::infinity()) {
          const float share = merge_weights(lse2, sink2_, &lse2).stored;
          fresh[r] *= share;
          stored[r] *= share;
        }
      }
      if (lse_[r] != nullptr && lane_in_quad() == 0) *lse_[r] = lse2 * kLn2;
    }
    // Zero even where a value nobody sees is infinite or NaN, which zero weights don't hide.
    const auto packed = [&](const float* block, int r) {
      return empty[r] ? 0u : D::Element::pack(block[2 * r] * fresh[r], block[2 * r + 1] * fresh[r]);
    };
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      float blocks[16];
      accumulators.get(16 * i, blocks);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        u32 words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) words[j] = packed(blocks + 4 * j, r);
        transpose_quad(words, lane_in_quad());
        if constexpr (D::kMerge) {
          words[0] = D::Element::add_scaled(words[0], stored_[r][i].x, stored[r]);
          words[1] = D::Element::add_scaled(words[1], stored_[r][i].y, stored[r]);
          words[2] = D::Element::add_scaled(words[2], stored_[r][i].z, stored[r]);
          words[3] = D::Element::add_scaled(words[3], stored_[r][i].w, stored[r]);
        }
        if (inside_[r] && is_stored(4 * i + lane_in_quad()))
          *wide(r, i) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < kNarrow; ++i) {
      float block[4];
      accumulators.get(4 * (4 * kWide + i), block);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        u32 word = packed(block, r);
        if constexpr (D::kMerge)
          word = D::Element::add_scaled(word, stored_narrow_[r][i], stored[r]);
        if (inside_[r] && is_stored(4 * kWide + i)) store_pair(narrow(r, i), word);
      }
    }
  }

 private:
  // Blocks of 8 columns: four at a time through a quad transpose, 16 bytes a lane, where rows are so
  // aligned; the rest by pairs of elements.
  static constexpr int kBlocks = D::kOutRegisters / 4;
  static constexpr int kWide = D::kStoreBytes == 16 ? kBlocks / 4 : 0;
  static constexpr int kNarrow = kBlocks - 4 * kWide;

  /// Where warpgroups divide the columns, the last one's may reach past head_dim_v.
  __device__ __forceinline__ bool is_stored(int block) const {
    return 2 * D::kOutRegisters == D::kHeadDimV || first_column_ + 8 * block < D::kHeadDimV;
  }
  static __device__ __forceinline__ int lane_in_quad() { return static_cast<int>(threadIdx.x) & 3; }
  __device__ __forceinline__ uint4* wide(int r, int i) const {
    return reinterpret_cast<uint4*>(out_[r] + (4 * i + lane_in_quad()) * 8);
  }
  __device__ __forceinline__ unsigned short* narrow(int r, int i) const {
    return out_[r] + (4 * kWide + i) * 8 + 2 * lane_in_quad();
  }
  static __device__ __forceinline__ void store_pair(unsigned short* target, u32 pair) {
    if constexpr (D::kStoreBytes >= 4) {
      *reinterpret_cast<u32*>(target) = pair;
    } else {
      target[0] = static_cast<unsigned short>(pair);
      target[1] = static_cast<unsigned short>(pair >> 16);
    }
  }
  static __device__ __forceinline__ u32 load_pair(const unsigned short* source) {
    if constexpr (D::kStoreBytes >= 4) return *reinterpret_cast<const u32*>(source);
    return source[0] | static_cast<u32>(source[1]) << 16;
  }

  int first_column_;
  unsigned short* out_[2];
  float* lse_[2];  // null: not wanted, not this thread's, or the row is past the end
  bool inside_[2];
  float sink2_ = 0.0f;  // in log2 units
  float stored_lse2_[2];
  uint4 stored_[2][kWide > 0 ? kWide : 1];
  u32 stored_narrow_[2][kNarrow > 0 ? kNarrow : 1];
};

}  // namespace stof
