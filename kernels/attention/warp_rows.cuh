#pragma once
// One warp's query rows against 16 keys at a time with mma.sync: scores, online softmax, weighted
// values. Masks are the caller's.
//
// A lane holds rows lane/4 and lane/4 + 8 of every 16-row tile; the four lanes of a quad share
// them.

#include "ptx/math.cuh"
#include "ptx/matrix.cuh"

namespace stof {

constexpr float kLog2e = 1.44269504088896f, kLn2 = 0.693147180559945f;

/// Layout of one row-major operand in shared memory: whole steps of 16 columns, then 16 bytes more,
/// so that the eight rows of a matrix lie in different banks.
constexpr int row_pitch(int head_dim) { return 16 * (2 * ((head_dim + 15) / 16) + 1); }

/// Within a few 1e-7, where the instruction is good to 2^-11 only; there are cycles to spare here.
__device__ __forceinline__ float exact_tanh(float x) {
  return 1.0f - __fdividef(2.0f, ptx::exp2(x * (2 * kLog2e)) + 1.0f);
}

/// D has: Element, kHeadDimQk, kHeadDimV, kRowTiles, kSoftcap.
template <class D>
class WarpRows {
 public:
  static constexpr int kStepKeys = 16;
  static constexpr int kStepsQk = (D::kHeadDimQk + 15) / 16;
  static constexpr int kPitchQk = row_pitch(D::kHeadDimQk), kPitchV = row_pitch(D::kHeadDimV);
  static constexpr int kOutTiles = D::kHeadDimV / 8;
  static constexpr int kMergePitch = D::kHeadDimV + 4;  // floats
  /// Query fragments stay in registers where the outputs leave room.
  static constexpr bool kQueryInRegisters =
      D::kRowTiles == 1 && D::kHeadDimQk <= 128 && D::kHeadDimV <= 128;

  using Scores = float[D::kRowTiles][2][4];  // [row tile][8 keys][accumulator]

  /// `query`: shared address of the warp's first row.
  __device__ explicit WarpRows(u32 query)
      : query_(query + (lane() & 15) * kPitchQk + (lane() >> 4) * 16) {}

  /// The query rows are in shared memory: forgets everything else.
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t) {
#pragma unroll
      for (int i = 0; i < kOutTiles; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[t][i][j] = 0.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m_[t][r] = -ptx::infinity();
        l_[t][r] = 0.0f;
      }
    }
    if constexpr (kQueryInRegisters) {
#pragma unroll
      for (int step = 0; step < kStepsQk; ++step)
        ptx::load_matrices(fragments_[step], query_ + step * 32);
    }
  }

  /// Scores of the 16 keys whose rows begin at shared address `keys`, in log2 units, softcap
  /// applied.
  __device__ __forceinline__ void score(Scores& scores, u32 keys, float scale,
                                        float softcap) const {
    // Even and odd steps add up apart, so that two products of a chain overlap.
    constexpr int kChains = D::kRowTiles == 1 && kStepsQk > 1 ? 2 : 1;
    float sums[kChains][D::kRowTiles][2][4];
#pragma unroll
    for (int c = 0; c < kChains; ++c)
#pragma unroll
      for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[c][t][i / 4][i % 4] = 0.0f;
    // Matrices: keys 0-7 at columns 0-7 and 8-15, then keys 8-15 likewise.
    const u32 row =
        keys + (((lane() >> 4) << 3) + (lane() & 7)) * kPitchQk + ((lane() >> 3) & 1) * 16;
#pragma unroll
    for (int step = 0; step < kStepsQk; ++step) {
      auto& sum = sums[step % kChains];
      u32 key[4];
      ptx::load_matrices(key, row + step * 32);
#pragma unroll
      for (int t = 0; t < D::kRowTiles; ++t) {
        if constexpr (kQueryInRegisters) {
          ptx::multiply(typename D::Element{}, sum[t][0], fragments_[step], key[0], key[1]);
          ptx::multiply(typename D::Element{}, sum[t][1], fragments_[step], key[2], key[3]);
        } else {
          u32 query[4];
          ptx::load_matrices(query, query_ + 16 * t * kPitchQk + step * 32);
          ptx::multiply(typename D::Element{}, sum[t][0], query, key[0], key[1]);
          ptx::multiply(typename D::Element{}, sum[t][1], query, key[2], key[3]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float value = sums[0][t][i / 4][i % 4];
        if constexpr (kChains == 2) value += sums[1][t][i / 4][i % 4];
        if constexpr (D::kSoftcap)
          scores[t][i / 4][i % 4] = softcap * kLog2e * exact_tanh(value * (scale / softcap));
        else
          scores[t][i / 4][i % 4] = value * (scale * kLog2e);
      }
  }

  /// The key (0..15) of accumulator j in one half of the scores.
  static __device__ __forceinline__ int column(int half, int j) {
    return 8 * half + 2 * (lane() & 3) + (j & 1);
  }

  /// Hides what the lane's bits of one row do not show: bit column(half, j) - 2 * (lane % 4).
  static __device__ __forceinline__ void hide_by_bits(float (&scores)[2][4], int r, u32 bits) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((bits >> (8 * (i / 2) + i % 2) & 1) == 0) scores[i / 2][2 * r + i % 2] = -ptx::infinity();
  }

  /// Scores (-inf: hidden) against the values whose rows begin at shared address `values`.
  __device__ __forceinline__ void add(Scores& scores, u32 values) {
    u32 weights[D::kRowTiles][4];
    weigh(scores, weights);
    // Matrices: columns 0-7 at keys 0-7 and 8-15, then columns 8-15 likewise.
    const u32 row = values + (lane() & 15) * kPitchV + (lane() >> 4) * 16;
#pragma unroll
    for (int pair = 0; pair < (kOutTiles + 1) / 2; ++pair) {
      u32 value[4];
      ptx::load_matrices_transposed(value, row + pair * 32);
#pragma unroll
      for (int t = 0; t < D::kRowTiles; ++t) {
        ptx::multiply(typename D::Element{}, out_[t][2 * pair], weights[t], value[0], value[1]);
        if (2 * pair + 1 < kOutTiles)
          ptx::multiply(typename D::Element{}, out_[t][2 * pair + 1], weights[t], value[2],
                        value[3]);
      }
    }
  }

  /// Stores unnormalised outputs, kMergePitch apart, and (maximum, sum) of the warp's rows.
  __device__ __forceinline__ void put(float* rows, float2* sums) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 16 * t + 8 * r + (lane() >> 2);
        float l = l_[t][r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        if ((lane() & 3) == 0) sums[row] = make_float2(m_[t][r], l);
#pragma unroll
        for (int i = 0; i < kOutTiles; ++i)
          *reinterpret_cast<float2*>(rows + row * kMergePitch + 8 * i + 2 * (lane() & 3)) =
              make_float2(out_[t][i][2 * r], out_[t][i][2 * r + 1]);
      }
  }

 private:
  using Weights = u32[D::kRowTiles][4];

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  /// Scores become weights exp2(score - m), packed as the left operand of the next product. The
  /// reference m only moves when a row's maximum grew by more than 2^8, which float32 sums and
  /// 16-bit weights take without loss.
  __device__ __forceinline__ void weigh(Scores& scores, Weights& weights) {
    constexpr float kLazyLimit = 8.0f;
    float top[D::kRowTiles][2];
    bool grew = false;
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[t][r] = fmaxf(fmaxf(scores[t][0][2 * r], scores[t][0][2 * r + 1]),
                          fmaxf(scores[t][1][2 * r], scores[t][1][2 * r + 1]));
        grew |= top[t][r] > m_[t][r] + kLazyLimit;
      }
    if (__any_sync(~0u, grew)) raise_references(top);
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float reference = m_[t][r] == -ptx::infinity() ? 0.0f : m_[t][r];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& score = scores[t][i / 2][2 * r + i % 2];
          score = ptx::exp2(score - reference);
          l_[t][r] += score;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          weights[t][2 * half + r] =
              D::Element::pack(scores[t][half][2 * r], scores[t][half][2 * r + 1]);
    }
  }

  __device__ __forceinline__ void raise_references(float (&top)[D::kRowTiles][2]) {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t) {
      float alpha[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float m = fmaxf(top[t][r], __shfl_xor_sync(~0u, top[t][r], 1));
        m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
        m = fmaxf(m, m_[t][r]);
        alpha[r] = ptx::exp2(m_[t][r] - (m == -ptx::infinity() ? 0.0f : m));
        m_[t][r] = m;
        l_[t][r] *= alpha[r];
      }
#pragma unroll
      for (int i = 0; i < kOutTiles; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[t][i][j] *= alpha[j >> 1];
    }
  }

  const u32 query_;
  float out_[D::kRowTiles][kOutTiles][4];
  float m_[D::kRowTiles][2], l_[D::kRowTiles][2];  // log2 units; this lane's part of the sum
  u32 fragments_[kQueryInRegisters ? kStepsQk : 1][4];
};

/// Eight columns of a row, merged over teams whose rows lie `team_rows` rows apart, in team order.
/// Unnormalised, with the row's maximum and sum.
template <int kTeams>
struct MergedPiece {
  float m, l, value[8];

  __device__ MergedPiece(const float* row, const float2* sums, int row_floats, int team_rows) {
    float top = -ptx::infinity();
#pragma unroll
    for (int t = 0; t < kTeams; ++t) top = fmaxf(top, sums[t * team_rows].x);
    m = top;
    l = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = 0.0f;
#pragma unroll
    for (int t = 0; t < kTeams; ++t) {
      const float2 sum = sums[t * team_rows];
      const float weight = sum.x == -ptx::infinity() ? 0.0f : ptx::exp2(sum.x - top);
      l += weight * sum.y;
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] += weight * row[t * team_rows * row_floats + i];
    }
  }

  template <class Element>
  __device__ __forceinline__ uint4 pack(float factor) const {
    return make_uint4(Element::pack(value[0] * factor, value[1] * factor),
                      Element::pack(value[2] * factor, value[3] * factor),
                      Element::pack(value[4] * factor, value[5] * factor),
                      Element::pack(value[6] * factor, value[7] * factor));
  }
};

}  // namespace stof
