#pragma once
// The end of a sequence: merging teams, then the final row or a partial one.

#include "attention/decode/sequences.cuh"
#include "ptx/arrivals.cuh"
#include "ptx/math.cuh"

namespace stof::decode {

/// A row's place in the tensors. `packed`: row among all of its key/value head's.
struct OutputRow {
  i32 head, query;
  __device__ OutputRow(const DecodeParams& params, i32 head_kv, i32 packed) {
    const i32 in_group = packed / params.seq_q;
    head = head_kv * params.group + in_group;
    query = packed - in_group * params.seq_q;
  }
  __device__ __forceinline__ unsigned short* out(const DecodeParams& params, i32 batch) const {
    return static_cast<unsigned short*>(params.out) + batch * params.out_strides[0] +
           head * params.out_strides[1] + query * params.out_strides[2];
  }
  __device__ __forceinline__ void store_lse(const DecodeParams& params, i32 batch,
                                            float value) const {
    if (params.lse == nullptr) return;
    const i64 num_heads = static_cast<i64>(params.num_heads_kv) * params.group;
    params.lse[(batch * num_heads + head) * params.seq_q + query] = value;
  }
};

/// From the sum of exp2(score - m) over all keys to the factor of the unnormalised output and the
/// LSE. A row that saw nothing gives 0 and -inf, with a sink too.
struct RowEnd {
  float factor, lse;
  __device__ RowEnd(const DecodeParams& params, i32 head, float m, float l) {
    if (l == 0.0f) {
      factor = 0.0f;
      lse = -ptx::infinity();
      return;
    }
    float top = m, sum = l;
    factor = 1.0f;
    if (params.sink != nullptr) {
      const float sink = params.sink[head] * kLog2e;
      top = fmaxf(m, sink);
      factor = ptx::exp2(m - top);
      sum = l * factor + ptx::exp2(sink - top);
    }
    factor /= sum;
    lse = (top + ptx::log2(sum)) * kLn2;
  }
};

/// Merges the teams' rows in `merge` (in team order) and stores them: final when this block walked
/// the whole sequence, else into partial slot `slot`. All threads; barriers are the caller's.
template <class D>
__device__ __forceinline__ void store_rows(const DecodeParams& params, const Sequence& s,
                                           const float* merge, bool whole, i64 slot) {
  const float2* sums =
      reinterpret_cast<const float2*>(merge + D::kTeams * D::kRows * D::kMergePitch);
  const i32 first = s.row_block * D::kRows;
  const i32 rows = min(params.num_rows - first, D::kRows);
  for (int piece = static_cast<int>(threadIdx.x); piece < rows * D::kOutTiles;
       piece += D::kThreads) {
    const int row = piece / D::kOutTiles, column = 8 * (piece - row * D::kOutTiles);
    const MergedPiece<D::kTeams> merged(merge + row * D::kMergePitch + column, sums + row,
                                        D::kMergePitch, D::kRows);
    if (whole) {
      const OutputRow place(params, s.head, first + row);
      const RowEnd end(params, place.head, merged.m, merged.l);
      *reinterpret_cast<uint4*>(place.out(params, s.batch) + column) =
          merged.template pack<typename D::Element>(end.factor);
      if (column == 0) place.store_lse(params, s.batch, end.lse);
    } else {
      const i64 at = slot * params.slot_rows + row;
      float4* to = reinterpret_cast<float4*>(params.partial_out + at * D::kHeadDimV + column);
      to[0] = make_float4(merged.value[0], merged.value[1], merged.value[2], merged.value[3]);
      to[1] = make_float4(merged.value[4], merged.value[5], merged.value[6], merged.value[7]);
      if (column == 0) params.partial_sums[at] = make_float2(merged.m, merged.l);
    }
  }
}

/// Merges the parts of a sequence that blocks from `first` on have stored, in block order, and stores
/// the final rows. All threads.
template <class D>
__device__ __forceinline__ void merge_parts(const DecodeParams& params, const Sequence& s, i32 first,
                                            i32 parts) {
  constexpr int kPieces = D::kHeadDimV / 4;
  const i32 first_row = s.row_block * D::kRows;
  const i32 rows = min(params.num_rows - first_row, D::kRows);
  for (int piece = static_cast<int>(threadIdx.x); piece < rows * kPieces; piece += D::kThreads) {
    const int row = piece / kPieces, column = 4 * (piece - row * kPieces);
    float top = -ptx::infinity(), sum = 0.0f;
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (i32 part = 0; part < parts; ++part) {
      const i64 at = partial_slot(first + part, part == 0) * params.slot_rows + row;
      const float2 state = __ldcg(params.partial_sums + at);
      const float4 got = __ldcg(
          reinterpret_cast<const float4*>(params.partial_out + at * D::kHeadDimV + column));
      // A part that saw nothing, or NaN alone, has no maximum; its sum still counts, as NaN does.
      const float nothing = -ptx::infinity();
      const float higher = fmaxf(top, state.x);
      const float old = top == nothing ? 0.0f : ptx::exp2(top - higher);
      const float weight = state.x == nothing ? 0.0f : ptx::exp2(state.x - higher);
      top = higher;
      sum = fmaf(sum, old, weight * state.y);
      value.x = fmaf(value.x, old, weight * got.x);
      value.y = fmaf(value.y, old, weight * got.y);
      value.z = fmaf(value.z, old, weight * got.z);
      value.w = fmaf(value.w, old, weight * got.w);
    }
    const OutputRow place(params, s.head, first_row + row);
    const RowEnd end(params, place.head, top, sum);
    uint2 words;
    words.x = D::Element::pack(value.x * end.factor, value.y * end.factor);
    words.y = D::Element::pack(value.z * end.factor, value.w * end.factor);
    *reinterpret_cast<uint2*>(place.out(params, s.batch) + column) = words;
    if (column == 0) place.store_lse(params, s.batch, end.lse);
  }
}

}  // namespace stof::decode
