#pragma once
// The two matrix products of one warp: scores = Q K^T and out += P V, fragments loaded one step
// ahead of the instructions that use them.

#include "attention/sm80_blockwise/config.cuh"
#include "ptx/matrix.cuh"

namespace stof {

/// Offset of the row this lane names when it loads 16 rows x 16 columns of a tile: first the upper
/// and lower eight rows of the left 16-byte unit, then of the right one (Q, and V transposed).
__device__ __forceinline__ u32 row_major_lane(u32 lane) {
  return (lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);
}
/// The same with both units of the upper eight rows first (K).
__device__ __forceinline__ u32 unit_major_lane(u32 lane) {
  return ((lane & 7) + ((lane >> 4) << 3)) * 128 + ((((lane >> 3) & 1) ^ (lane & 7)) << 4);
}

/// Address of step `step` (16 columns, two units) of a tile with kRows rows; `row`: the lane's
/// address of the first step. Inside a 128-byte row the swizzle makes a step an XOR.
template <int kRows>
__device__ __forceinline__ u32 fragment_address(u32 row, int step) {
  return (row ^ (step % 4 * 32)) + step / 4 * kRows * 128;
}

/// The left operand of one step: one fragment a slab.
template <class D>
struct QueryFragments {
  u32 words[D::kWarpSlabs][4];
  __device__ __forceinline__ void load(u32 query_row, int step) {
#pragma unroll
    for (int slab = 0; slab < D::kWarpSlabs; ++slab)
      ptx::load_matrices(words[slab],
                         fragment_address<64>(query_row, step) + slab * D::kQueryBytes);
  }
};

/// Where the scores' left operand comes from: shared memory each time, or registers filled once an
/// item.
template <class D, bool kInRegisters = D::kQueryInRegisters>
struct QueryOperand {
  u32 row;
  QueryFragments<D> buffers[2];
  __device__ __forceinline__ void begin(u32 query_row, bool) { row = query_row; }
  __device__ __forceinline__ void prepare(int step) { buffers[step & 1].load(row, step); }
  __device__ __forceinline__ const u32* fragment(int step, int slab) const {
    return buffers[step & 1].words[slab];
  }
};

template <class D>
struct QueryOperand<D, true> {
  QueryFragments<D> all[D::kStepsQk];
  __device__ __forceinline__ void begin(u32 query_row, bool is_new) {
    if (!is_new) return;
#pragma unroll
    for (int step = 0; step < D::kStepsQk; ++step) all[step].load(query_row, step);
  }
  __device__ __forceinline__ void prepare(int) {}
  __device__ __forceinline__ const u32* fragment(int step, int slab) const {
    return all[step].words[slab];
  }
};

template <class D>
__device__ __forceinline__ void multiply_scores(
    float (&scores)[D::kWarpSlabs][D::kScoreRegisters], QueryOperand<D>& query, u32 key_row) {
  constexpr int kPairs = D::kTileKv / 16;  // of 8-key columns
#pragma unroll
  for (int slab = 0; slab < D::kWarpSlabs; ++slab)
#pragma unroll
    for (int i = 0; i < D::kScoreRegisters; ++i) scores[slab][i] = 0.0f;
  const auto load = [&](u32* words, int step, int pair) {
    ptx::load_matrices(words, fragment_address<D::kTileKv>(key_row, step) + pair * 16 * 128);
  };
  u32 keys[2][4];
  query.prepare(0);
  load(keys[0], 0, 0);
#pragma unroll
  for (int step = 0; step < D::kStepsQk; ++step) {
    if (step + 1 < D::kStepsQk) query.prepare(step + 1);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int index = step * kPairs + pair;
      if (pair + 1 < kPairs)
        load(keys[(index + 1) & 1], step, pair + 1);
      else if (step + 1 < D::kStepsQk)
        load(keys[(index + 1) & 1], step + 1, 0);
      const u32* key = keys[index & 1];
#pragma unroll
      for (int slab = 0; slab < D::kWarpSlabs; ++slab) {
        float* c = scores[slab] + 8 * pair;
        ptx::multiply(typename D::Element{}, c, query.fragment(step, slab), key[0], key[1]);
        ptx::multiply(typename D::Element{}, c + 4, query.fragment(step, slab), key[2], key[3]);
      }
    }
  }
}

/// `scores` hold the weights; they become 16-bit fragments here, 16 keys at a time.
template <class D>
__device__ __forceinline__ void multiply_output(
    float (&out)[D::kWarpSlabs][D::kOutRegisters],
    const float (&scores)[D::kWarpSlabs][D::kScoreRegisters], u32 value_row) {
  constexpr int kBlocks = D::kOutColumns / 8;
  constexpr int kPairs = (kBlocks + 1) / 2;  // the last may have its first half only
  const auto load = [&](u32* words, int step, int pair) {
    ptx::load_matrices_transposed(
        words, fragment_address<D::kTileKv>(value_row, pair) + step * 16 * 128);
  };
  u32 values[2][4], weights[D::kWarpSlabs][4];
  load(values[0], 0, 0);
#pragma unroll
  for (int step = 0; step < D::kStepsPv; ++step) {
#pragma unroll
    for (int slab = 0; slab < D::kWarpSlabs; ++slab)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[slab][i] = D::Element::pack(scores[slab][8 * step + 2 * i],
                                            scores[slab][8 * step + 2 * i + 1]);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int index = step * kPairs + pair;
      if (pair + 1 < kPairs)
        load(values[(index + 1) & 1], step, pair + 1);
      else if (step + 1 < D::kStepsPv)
        load(values[(index + 1) & 1], step + 1, 0);
      const u32* value = values[index & 1];
#pragma unroll
      for (int slab = 0; slab < D::kWarpSlabs; ++slab) {
        float* c = out[slab] + 8 * pair;
        ptx::multiply(typename D::Element{}, c, weights[slab], value[0], value[1]);
        if (2 * pair + 1 < kBlocks)
          ptx::multiply(typename D::Element{}, c + 4, weights[slab], value[2], value[3]);
      }
    }
  }
}

}  // namespace stof
