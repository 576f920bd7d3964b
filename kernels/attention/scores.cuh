#pragma once
// Score modifications, between the matrix product and the mask's bits: scale, softcap, ALiBi, bias
// or position bias, the caller's own function, in this order. Written once for every kernel with the
// accumulator layout of softmax.cuh.

#include "attention/rows.cuh"
#include "ptx/math.cuh"

namespace stof {

/// Whether scores depend on which keys and queries they are of.
template <class Config>
constexpr bool kNeedsTokens =
    Config::kAlibi || Config::kBias || Config::kPositionBias || Config::kScoreMod;

/// What turns a score as modify() leaves it into an exponent of 2. ALiBi, biases and the caller's
/// function leave it in that unit; elsewhere the factor stays in the softmax's multiply-add, where it
/// costs nothing.
template <class D>
__device__ __forceinline__ float score_unit(const AttentionParams& params) {
  constexpr float kLog2e = 1.44269504088896f;
  if constexpr (kNeedsTokens<D>)
    return 1.0f;
  else if constexpr (D::kSoftcap)
    return params.softcap * kLog2e;
  else
    return params.scale_log2;
}

/// What a thread needs to modify the scores of its two rows; made once an item.
template <class D>
class ScoreRows {
 public:
  ScoreRows() = default;
  __device__ __forceinline__ ScoreRows(const AttentionParams& params, const WorkRecord& record,
                                       const Sequence& sequence, int warpgroup) {
    if constexpr (kNeedsTokens<D>) {
      const ThreadRows<D> rows(record, warpgroup);
      if constexpr (D::kAlibi) slope2_ = params.alibi_slopes[rows.head * params.alibi_stride] * kLog2e;
      if constexpr (D::kPositionBias)
        table_ = params.position_table + rows.head * params.position_head_stride;
      if constexpr (D::kScoreMod) {
        batch_ = record.batch;
        head_ = rows.head;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const i32 last = sequence.seq_q - 1;  // rows past the end are computed, never stored
        const i32 token =
            query_token<D>(params, rows.position[r] < last ? rows.position[r] : last);
        query_[r] = token + (params.bottom_right ? sequence.seq_kv - sequence.seq_q : 0);
        if constexpr (D::kBias)
          bias_[r] = params.bias + record.batch * params.bias_strides[0] +
                     rows.head * params.bias_strides[1] + token * params.bias_strides[2];
      }
    }
  }

  /// The tile's first column is token `first_key`, the next ones follow in steps of params.step.
  template <int kRegisters>
  __device__ __forceinline__ void modify(float (&scores)[kRegisters], const AttentionParams& params,
                                         i32 first_key) const {
    float unit = params.scale_log2;
    if constexpr (D::kSoftcap) {
      const float inner = params.scale / params.softcap;
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) scores[i] = ptx::tanh(scores[i] * inner);
      unit = params.softcap * kLog2e;
    }
    if constexpr (D::kAlibi) {
      // slope * distance is linear in the column: one product a row and tile, one fma a score.
      // Opaque, or the compiler would compute every column's share ahead of the tile loop and hold
      // it in a register.
      const float slope_of_step = ptx::opaque(slope2_ * static_cast<float>(params.step));
      float base[2];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        base[r] = slope2_ * static_cast<float>(first_key + first_column() * params.step - query_[r]);
#pragma unroll
      for (int i = 0; i < kRegisters; ++i)
        scores[i] = scores[i] * unit + (base[(i >> 1) & 1] + slope_of_step * column(i));
      unit = 1.0f;
    }
    if constexpr (D::kBias) {
      if (params.bias_pairs && first_key + 2 * kRegisters <= params.seq_kv)
        add_pairs(scores, unit, params, first_key);
      else
        add_elements(scores, unit, params, first_key);
    }
    if constexpr (D::kPositionBias) add_buckets(scores, unit, params, first_key);
    if constexpr (D::kScoreMod) {
      constexpr float kLn2 = 0.693147180559945f;
      constexpr bool kHasUnit = D::kAlibi || D::kBias || D::kPositionBias;  // of exponents of 2
      call_function(scores, kHasUnit ? kLn2 : D::kSoftcap ? params.softcap : params.scale, params,
                    first_key);
    }
  }

 private:
  static constexpr float kLog2e = 1.44269504088896f;

  /// Biases in flight at a time; more would hide more of their latency, and spill. The compiler would
  /// load all at once: Params::zero makes the next batch's addresses depend on this batch's results.
  static constexpr int kBatch = D::kScoreRegisters <= 32 || D::kSoftcap ? 8 : 16;

  /// Column of register i, beside the thread's first.
  static __device__ __forceinline__ constexpr int column(int i) { return 8 * (i / 4) + (i & 1); }
  static __device__ __forceinline__ i32 first_column() {
    return 2 * (static_cast<i32>(ptx::thread_index()) & 3);
  }

  /// Finite biases may be as large as float32 goes (masks are often given so) and must not turn
  /// into -inf by the change of unit: they are held where that leaves them finite.
  static __device__ __forceinline__ float added(float score, float unit, float bias) {
    constexpr float kLargest = 1e38f;
    const float sum = score * unit + fmaxf(bias, -kLargest) * kLog2e;
    return bias == -ptx::infinity() ? bias : sum;
  }

  /// The last kCount scores before `end`, or-ed.
  template <int kCount, int kRegisters>
  static __device__ __forceinline__ i32 any_bits(const float (&scores)[kRegisters], int end) {
    i32 bits = 0;
#pragma unroll
    for (int i = 1; i <= kCount; ++i) bits |= ptx::bits_of(scores[end - i]);
    return bits;
  }

  template <int kRegisters>
  __device__ __forceinline__ void add_pairs(float (&scores)[kRegisters], float unit,
                                            const AttentionParams& params, i32 first_key) const {
    i32 offset = first_key + first_column();
#pragma unroll
    for (int i = 0; i < kRegisters; i += 2) {
      if (i > 0 && i % kBatch == 0) offset += any_bits<kBatch>(scores, i) & params.zero;
      const float2 pair =
          *reinterpret_cast<const float2*>(bias_[(i >> 1) & 1] + offset + column(i));
      scores[i] = added(scores[i], unit, pair.x);
      scores[i + 1] = added(scores[i + 1], unit, pair.y);
    }
  }

  /// Any strides; the mask's bits hide columns past the last key. (In residue order the tile lies in
  /// one residue and has none.)
  template <int kRegisters>
  __device__ __forceinline__ void add_elements(float (&scores)[kRegisters], float unit,
                                               const AttentionParams& params, i32 first_key) const {
    const i64 step = params.step * params.bias_strides[3];
    const i32 keys = params.seq_kv - first_key - first_column();  // from this thread's first on
    i64 offset = first_key * params.bias_strides[3] + first_column() * step;
#pragma unroll
    for (int i = 0; i < kRegisters; i += 4) {  // two columns of both rows
      if (i > 0) offset += 8 * step;
      if (i > 0 && i % kBatch == 0) offset += any_bits<kBatch>(scores, i) & params.zero;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float bias = column(i + j) < keys ? bias_[j >> 1][offset + (j & 1) * step] : 0.0f;
        scores[i + j] = added(scores[i + j], unit, bias);
      }
    }
  }

  __device__ __forceinline__ float bucket_value(const AttentionParams& params, i32 distance) const {
    const i32 reach = params.position_reach;
    const i32 held = distance < -reach ? -reach : distance < reach ? distance : reach;
    return table_[static_cast<i64>(params.position_buckets[held]) * params.position_bucket_stride];
  }

  /// Two reads a score, of its distance's bucket and of that bucket's value; a tile all of whose
  /// distances lie beyond the reach takes two reads a row. Columns past the last key are hidden by
  /// the mask's bits.
  template <int kRegisters>
  __device__ __forceinline__ void add_buckets(float (&scores)[kRegisters], float unit,
                                              const AttentionParams& params, i32 first_key) const {
    const i32 reach = params.position_reach, step = params.step;
    i32 distance[2];  // of the thread's first column
    bool far = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      distance[r] = first_key + first_column() * step - query_[r];
      far &= distance[r] >= reach || distance[r] + column(kRegisters - 1) * step <= -reach;
    }
    if (far) {
      float value[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) value[r] = bucket_value(params, distance[r]);
#pragma unroll
      for (int i = 0; i < kRegisters; ++i) scores[i] = added(scores[i], unit, value[(i >> 1) & 1]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kRegisters; i += 4) {  // two columns of both rows
      if (i > 0 && i % kBatch == 0) {
        const i32 nothing = any_bits<kBatch>(scores, i) & params.zero;
        distance[0] += nothing;
        distance[1] += nothing;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        scores[i + j] = added(scores[i + j], unit,
                              bucket_value(params, distance[j >> 1] + column(i + j) * step));
    }
  }

  /// The caller's function of the natural score, which is `natural` times what is held. Like a bias,
  /// a finite result stays finite and -inf hides; what a bias hides stays hidden.
  template <int kRegisters>
  __device__ __forceinline__ void call_function(float (&scores)[kRegisters], float natural,
                                                const AttentionParams& params,
                                                i32 first_key) const {
    constexpr int kCalls = 8;  // in flight at a time
    i32 key = first_key + first_column() * params.step;
    if constexpr (D::ScoreMod::kUnrolled) {
#pragma unroll
      for (int i = 0; i < kRegisters; i += kCalls) {
        if (i > 0) key += any_bits<kCalls>(scores, i) & params.zero;
#pragma unroll
        for (int j = 0; j < kCalls; ++j)
          scores[i + j] = changed(scores[i + j], natural, params, query_[(j >> 1) & 1],
                                  key + column(i + j) * params.step);
      }
    } else {
      // A long function is in the loop kCalls times, not once a score: the scores pass by.
#pragma unroll 1
      for (int i = 0; i < kRegisters; i += kCalls) {
        float results[kCalls];
#pragma unroll
        for (int j = 0; j < kCalls; ++j)
          results[j] = changed(scores[j], natural, params, query_[(j >> 1) & 1],
                               key + column(j) * params.step);
#pragma unroll
        for (int j = 0; j + kCalls < kRegisters; ++j) scores[j] = scores[j + kCalls];
#pragma unroll
        for (int j = 0; j < kCalls; ++j) scores[kRegisters - kCalls + j] = results[j];
        key += column(kCalls) * params.step;
      }
    }
  }

  __device__ __forceinline__ float changed(float score, float natural,
                                           const AttentionParams& params, i32 query,
                                           i32 key) const {
    using Params = typename D::ScoreMod::Params;
    const float result = D::ScoreMod::apply(static_cast<const Params&>(params), score * natural,
                                            batch_, head_, query, key);
    const bool hidden = (D::kBias || D::kPositionBias) && score == -ptx::infinity();
    return hidden ? score : exponent_of(result);
  }

  /// added() to nothing; NaN stays NaN.
  static __device__ __forceinline__ float exponent_of(float score) {
    constexpr float kLargest = 1e38f;
    const float held = score < -kLargest ? -kLargest : score;
    return score == -ptx::infinity() ? score : held * kLog2e;
  }

  float slope2_ = 0.0f;  // ALiBi's, in log2 units
  i32 query_[2];         // query token + position offset
  const float* bias_[2];
  const float* table_;   // of the head, with position bias
  i32 batch_, head_;     // with the caller's function
};

}  // namespace stof
