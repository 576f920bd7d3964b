#pragma once
// One warp's rows of a sequence: which keys each sees, and the walk through a tile.

#include "attention/decode/loader.cuh"
#include "ptx/shared.cuh"

namespace stof::decode {

template <class D>
class DecodeRows {
 public:
  /// `query` and `stages`: shared addresses. `first_row`: of the warp, within the block's rows.
  __device__ DecodeRows(const DecodeParams& params, u32 query, u32 stages, int team, int first_row)
      : params_(params),
        rows_(query + first_row * D::kPitchQk),
        stages_(stages),
        team_(team),
        first_row_(first_row) {}

  /// The query rows are in shared memory.
  __device__ __forceinline__ void start(const Sequence& s) {
    rows_.start();
    length_ = s.length;
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const i32 row = s.row_block * D::kRows + first_row_ + 16 * t + 8 * r + (lane() >> 2);
        const i32 head = row / params_.seq_q;
        position_[t][r] = first_position(length_, params_.seq_q) + row - head * params_.seq_q;
        if constexpr (D::kAlibi)
          slope_[t][r] = row < params_.num_rows
                             ? params_.alibi_slopes[s.head * params_.group + head] * kLog2e
                             : 0.0f;
        if constexpr (D::kPositionBias)
          head_[t][r] = s.head * params_.group + (row < params_.num_rows ? head : 0);
      }
  }

  /// A tile of the team's keys from `first_key` on. payload >= 0: the tile's bits lie in the stage.
  __device__ __forceinline__ void add_tile(int stage, i32 first_key, i32 payload, i32 sinks) {
    const u32 base = stages_ + stage * D::kStageBytes;
    const u32 keys = base + team_ * D::kTeamKeys * D::kPitchQk;
    const u32 values = base + D::kKeyBytes + team_ * D::kTeamKeys * D::kPitchV;
    const u32 bits = base + D::kKeyBytes + D::kValueBytes + (team_ * D::kRows + first_row_) * 8;
    const bool all_seen = seen_by_all(first_key, sinks);
#pragma unroll 1
    for (int step = 0; step < D::kSteps; ++step) {
      Scores scores;
      rows_.score(scores, keys + step * D::kStepKeys * D::kPitchQk, params_.scale, params_.softcap);
      const i32 key = first_key + step * D::kStepKeys;
      if constexpr (D::kAlibi) add_distance(scores, key);
      if constexpr (D::kPositionBias) add_buckets(scores, key);
      if (!all_seen) hide_by_range(scores, key, sinks);
      if constexpr (D::kLists)
        if (payload >= 0) hide_by_bits(scores, bits, team_ * D::kTeamKeys + step * D::kStepKeys);
      rows_.add(scores, values + step * D::kStepKeys * D::kPitchV);
    }
  }

  /// Writes outputs (unnormalised), maxima and sums to the team's part of `merge`.
  __device__ __forceinline__ void put(float* merge) const {
    const int first = team_ * D::kRows + first_row_;
    rows_.put(merge + first * D::kMergePitch,
              reinterpret_cast<float2*>(merge + D::kTeams * D::kRows * D::kMergePitch) + first);
  }

 private:
  using Rows = WarpRows<D>;
  using Scores = typename Rows::Scores;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ __forceinline__ void add_distance(Scores& scores, i32 first_key) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = (i >> 1) & 1;
        scores[t][i / 4][i % 4] +=
            slope_[t][r] * static_cast<float>(first_key + Rows::column(i / 4, i) - position_[t][r]);
      }
  }

  /// In log2 units; a finite value never hides, as anywhere (attention/scores.cuh).
  __device__ __forceinline__ float bucket_value(int t, int r, i32 distance) const {
    constexpr float kLargest = 1e38f;
    const i32 reach = params_.position_reach;
    const i32 held = distance < -reach ? -reach : distance < reach ? distance : reach;
    const i32 heads = params_.num_heads_kv * params_.group;
    const float value =
        params_.position_table[static_cast<i64>(params_.position_buckets[held]) * heads +
                               head_[t][r]];
    return value == -ptx::infinity() ? value : fmaxf(value, -kLargest) * kLog2e;
  }

  /// Two reads a score near the queries; keys farther back than the reach take two a row.
  __device__ __forceinline__ void add_buckets(Scores& scores, i32 first_key) const {
    const i32 last = first_key + D::kStepKeys - 1, reach = params_.position_reach;
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float(&mine)[2][4] = scores[t];
        if (last <= position_[t][r] - reach) {
          const float value = bucket_value(t, r, -reach);
#pragma unroll
          for (int i = 0; i < 4; ++i) mine[i / 2][2 * r + i % 2] += value;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            mine[i / 2][2 * r + i % 2] +=
                bucket_value(t, r, first_key + Rows::column(i / 2, i) - position_[t][r]);
        }
      }
  }

  /// Whether every query of the sequence sees all of the team's keys from `key` on, lists aside.
  __device__ __forceinline__ bool seen_by_all(i32 key, i32 sinks) const {
    const i32 end = key + D::kTeamKeys;
    if constexpr (D::kLists) return end <= length_;
    const i32 position = first_position(length_, params_.seq_q);
    return end - 1 <= last_key(params_.window, position, length_) &&
           (key >= first_key(params_.window, position + params_.seq_q - 1) || end <= sinks);
  }

  __device__ __forceinline__ void hide_by_range(Scores& scores, i32 key, i32 sinks) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const i32 last =
            D::kLists ? length_ - 1 : last_key(params_.window, position_[t][r], length_);
        const i32 first = D::kLists ? 0 : first_key(params_.window, position_[t][r]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const i32 mine = key + Rows::column(i / 2, i);
          if (!(mine <= last && (mine >= first || mine < sinks)))
            scores[t][i / 2][2 * r + i % 2] = -ptx::infinity();
        }
      }
  }

  /// `bits`: shared address of the warp's rows of the payload; `first`: bit of the step's first
  /// key.
  __device__ __forceinline__ void hide_by_bits(Scores& scores, u32 bits, int first) const {
#pragma unroll
    for (int t = 0; t < D::kRowTiles; ++t)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const u64 word = ptx::load_shared_u64(bits + (16 * t + 8 * r + (lane() >> 2)) * 8);
        Rows::hide_by_bits(scores[t], r, static_cast<u32>(word >> (first + 2 * (lane() & 3))));
      }
  }

  const DecodeParams& params_;
  Rows rows_;
  const u32 stages_;
  const int team_, first_row_;
  i32 length_;
  i32 position_[D::kRowTiles][2];
  float slope_[D::kRowTiles][2];
  i32 head_[D::kRowTiles][2];   // of the queries, with position bias
};

}  // namespace stof::decode
