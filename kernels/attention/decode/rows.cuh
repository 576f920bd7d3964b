#pragma once
// One warp's query rows against 16 keys at a time: scores, mask, online softmax, weighted values.
//
// A lane holds rows lane/4 and lane/4 + 8 of every 16-row tile; the four lanes of a quad share them.

#include "attention/decode/loader.cuh"
#include "ptx/math.cuh"
#include "ptx/matrix.cuh"

namespace stof::decode {

/// Within a few 1e-7, where the instruction is good to 2^-11 only; there are cycles to spare here.
__device__ __forceinline__ float exact_tanh(float x) {
  return 1.0f - __fdividef(2.0f, ptx::exp2(x * (2 * kLog2e)) + 1.0f);
}

template <class D>
class WarpRows {
 public:
  /// `query` and `stages`: shared addresses. `first_row`: of the warp, within the block's rows.
  __device__ WarpRows(const DecodeParams& params, u32 query, u32 stages, int team, int first_row)
      : params_(params),
        query_(query + first_row * D::kPitchQk + (lane() & 15) * D::kPitchQk + (lane() >> 4) * 16),
        stages_(stages),
        team_(team),
        first_row_(first_row) {}

  /// The query rows are in shared memory.
  __device__ __forceinline__ void start(const Sequence& s) {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t) {
#pragma unroll
      for (int i = 0; i < D::kOutTiles; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[t][i][j] = 0.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m_[t][r] = -ptx::infinity();
        l_[t][r] = 0.0f;
        const i32 row = s.row_block * D::kRows + first_row_ + 16 * t + 8 * r + (lane() >> 2);
        const i32 head = row / params_.seq_q;
        const i32 position = first_position(s.length, params_.seq_q) + row - head * params_.seq_q;
        last_[t][r] = D::kLists ? s.length - 1 : last_key(params_.window, position, s.length);
        first_[t][r] = D::kLists ? 0 : first_key(params_.window, position);
        if constexpr (D::kAlibi) {
          position_[t][r] = position;
          slope_[t][r] = row < params_.num_rows
                             ? params_.alibi_slopes[s.head * params_.group + head] * kLog2e
                             : 0.0f;
        }
      }
    }
    const i32 position = first_position(s.length, params_.seq_q);
    last_of_all_ = D::kLists ? s.length - 1 : last_key(params_.window, position, s.length);
    first_of_all_ = D::kLists ? 0 : first_key(params_.window, position + params_.seq_q - 1);
    if constexpr (D::kQueryInRegisters) {
#pragma unroll
      for (int step = 0; step < D::kStepsQk; ++step)
        ptx::load_matrices(fragments_[step], query_ + step * 32);
    }
  }

  /// A tile of the team's keys from `first_key` on. payload >= 0: the tile's bits lie in the stage.
  __device__ __forceinline__ void add_tile(int stage, i32 first_key, i32 payload, i32 sinks) {
    const u32 base = stages_ + stage * D::kStageBytes;
    const u32 keys = base + team_ * D::kTeamKeys * D::kPitchQk;
    const u32 values = base + D::kKeyBytes + team_ * D::kTeamKeys * D::kPitchV;
    const u32 bits = base + D::kKeyBytes + D::kValueBytes + (team_ * D::kRows + first_row_) * 8;
#pragma unroll 1
    for (int step = 0; step < D::kSteps; ++step) {
      float scores[D::kRowTiles][2][4];
      multiply_keys(scores, keys + step * D::kStepKeys * D::kPitchQk);
      const i32 key = first_key + step * D::kStepKeys;
      scale_scores(scores, key);
      const bool all_seen = key + D::kStepKeys - 1 <= last_of_all_ &&
                            (key >= first_of_all_ || key + D::kStepKeys <= sinks);
      if (!all_seen) hide_by_range(scores, key, sinks);
      if constexpr (D::kLists)
        if (payload >= 0) hide_by_bits(scores, bits, team_ * D::kTeamKeys + step * D::kStepKeys);
      u32 weights[D::kRowTiles][4];
      weigh(scores, weights);
      multiply_values(weights, values + step * D::kStepKeys * D::kPitchV);
    }
  }

  /// Writes outputs (unnormalised), maxima and sums to the team's part of `merge`.
  __device__ __forceinline__ void put(float* merge) const {
    float* rows = merge + (team_ * D::kRows + first_row_) * D::kMergePitch;
    float2* sums =
        reinterpret_cast<float2*>(merge + D::kTeams * D::kRows * D::kMergePitch) +
        team_ * D::kRows + first_row_;
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
        for (int i = 0; i < D::kOutTiles; ++i)
          *reinterpret_cast<float2*>(rows + row * D::kMergePitch + 8 * i + 2 * (lane() & 3)) =
              make_float2(out_[t][i][2 * r], out_[t][i][2 * r + 1]);
      }
  }

 private:
  using Scores = float[D::kRowTiles][2][4];  // [row tile][8 keys][accumulator]
  using Weights = u32[D::kRowTiles][4];

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ __forceinline__ void multiply_keys(Scores& scores, u32 keys) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[t][i / 4][i % 4] = 0.0f;
    // Matrices: keys 0-7 at columns 0-7 and 8-15, then keys 8-15 likewise.
    const u32 row =
        keys + (((lane() >> 4) << 3) + (lane() & 7)) * D::kPitchQk + ((lane() >> 3) & 1) * 16;
#pragma unroll
    for (int step = 0; step < D::kStepsQk; ++step) {
      u32 key[4];
      ptx::load_matrices(key, row + step * 32);
#pragma unroll
      for (int t = 0; t < D::kRowTiles; ++t) {
        if constexpr (D::kQueryInRegisters) {
          ptx::multiply(typename D::Element{}, scores[t][0], fragments_[step], key[0], key[1]);
          ptx::multiply(typename D::Element{}, scores[t][1], fragments_[step], key[2], key[3]);
        } else {
          u32 query[4];
          ptx::load_matrices(query, query_ + 16 * t * D::kPitchQk + step * 32);
          ptx::multiply(typename D::Element{}, scores[t][0], query, key[0], key[1]);
          ptx::multiply(typename D::Element{}, scores[t][1], query, key[2], key[3]);
        }
      }
    }
  }

  /// The lane's i-th key of a row: accumulators 0, 1 of both halves.
  static __device__ __forceinline__ int column(int half, int j) {
    return 8 * half + 2 * (lane() & 3) + (j & 1);
  }

  /// To log2 units, with softcap and ALiBi.
  __device__ __forceinline__ void scale_scores(Scores& scores, i32 first_key) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& score = scores[t][i / 4][i % 4];
        if constexpr (D::kSoftcap) {
          score = params_.softcap * kLog2e * exact_tanh(score * (params_.scale / params_.softcap));
        } else {
          score *= params_.scale * kLog2e;
        }
        if constexpr (D::kAlibi) {
          const int r = (i >> 1) & 1;
          score += slope_[t][r] *
                   static_cast<float>(first_key + column(i / 4, i) - position_[t][r]);
        }
      }
  }

  __device__ __forceinline__ void hide_by_range(Scores& scores, i32 first_key, i32 sinks) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = (i >> 1) & 1;
        const i32 key = first_key + column(i / 4, i);
        if (!(key <= last_[t][r] && (key >= first_[t][r] || key < sinks)))
          scores[t][i / 4][i % 4] = -ptx::infinity();
      }
  }

  /// `bits`: shared address of the warp's rows of the payload; `first`: bit of the step's first key.
  __device__ __forceinline__ void hide_by_bits(Scores& scores, u32 bits, int first) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        u32 low, high;
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(low), "=r"(high)
                     : "r"(bits + (16 * t + 8 * r + (lane() >> 2)) * 8)
                     : "memory");
        const u32 word =
            static_cast<u32>(((static_cast<u64>(high) << 32) | low) >> (first + 2 * (lane() & 3)));
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if ((word >> (8 * (i / 2) + i % 2) & 1) == 0)
            scores[t][i / 2][2 * r + i % 2] = -ptx::infinity();
      }
  }

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
      for (int i = 0; i < D::kOutTiles; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[t][i][j] *= alpha[j >> 1];
    }
  }

  __device__ __forceinline__ void multiply_values(const Weights& weights, u32 values) {
    // Matrices: columns 0-7 at keys 0-7 and 8-15, then columns 8-15 likewise.
    const u32 row = values + (lane() & 15) * D::kPitchV + (lane() >> 4) * 16;
#pragma unroll
    for (int pair = 0; pair < (D::kOutTiles + 1) / 2; ++pair) {
      u32 value[4];
      ptx::load_matrices_transposed(value, row + pair * 32);
#pragma unroll
      for (int t = 0; t < D::kRowTiles; ++t) {
        ptx::multiply(typename D::Element{}, out_[t][2 * pair], weights[t], value[0], value[1]);
        if (2 * pair + 1 < D::kOutTiles)
          ptx::multiply(typename D::Element{}, out_[t][2 * pair + 1], weights[t], value[2],
                        value[3]);
      }
    }
  }

  const DecodeParams& params_;
  const u32 query_, stages_;
  const int team_, first_row_;
  float out_[D::kRowTiles][D::kOutTiles][4];
  float m_[D::kRowTiles][2], l_[D::kRowTiles][2];  // log2 units; this lane's part of the sum
  i32 last_[D::kRowTiles][2], first_[D::kRowTiles][2];  // keys the rows see
  i32 last_of_all_, first_of_all_;                      // keys that every row sees
  i32 position_[D::kRowTiles][2];
  float slope_[D::kRowTiles][2];
  u32 fragments_[D::kQueryInRegisters ? D::kStepsQk : 1][4];
};

}  // namespace stof::decode
