#pragma once
// One panel of queries against one key tile. Scores are kept transposed, [key][query]: maximum,
// sum, rescaling and masks then work lane by lane, and K is read as it lies, by broadcast.

#include "backend/cpu/attention/kernel_load.h"

namespace stof::cpu {
namespace {

/// Up to kPanel query rows and their running state; all arrays have rows of `width` floats.
struct Panel {
  std::int64_t first_row;  ///< inside the query tile
  std::int64_t num_rows;   ///< inside the sequence
  std::int64_t width;      ///< whole vectors that hold them
  float* queries;          ///< [head_dim_qk][width]
  float* out;              ///< [head_dim_v rounded up to kRows][width], not normalised
  float* run_max;          ///< [width]
  float* run_sum;          ///< [width]
};

/// A key tile ready to be used by every panel.
struct KeyTile {
  std::int64_t k_begin, num_keys;  ///< keys inside the sequence only
  const float* keys;               ///< row k at keys + k * key_stride
  std::int64_t key_stride;
  const float* values;  ///< packed by pack_values
  bool values_finite;
  const std::uint64_t* key_bits;  ///< from turn_payload, or null for a full tile
};

struct TileScratch {
  float* scores;  ///< [tile_kv rounded up to kRows][kPanel]
  float* bias;    ///< [tile_kv][kPanel]
};

/// scores[k][lane] = q . k. Returns the maximum per lane in `top`.
template <int kVecs>
void score_tile(const KernelParams& params, const Panel& panel, const KeyTile& tile, float* scores,
                Vec (&top)[kVecs]) {
  for (int j = 0; j < kVecs; ++j) top[j] = Simd::set1(-kInfinity);
  for (std::int64_t k = 0; k < tile.num_keys; k += kRows) {
    // Rows past the end repeat the last key: they are legal to read, leave the maximum as it is,
    // and their scores are never used.
    const float* rows[kRows];
    for (std::int64_t i = 0; i < kRows; ++i)
      rows[i] = tile.keys + smaller(k + i, tile.num_keys - 1) * tile.key_stride;
    Vec sum[kRows][kVecs];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVecs; ++j) sum[i][j] = Simd::set1(0.0f);
    const float* queries = panel.queries;
    for (std::int64_t d = 0; d < params.head_dim_qk; ++d, queries += kVecs * kWidth) {
      Vec q[kVecs];
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) q[j] = Simd::load(queries + j * kWidth);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec key = Simd::set1(rows[i][d]);
#pragma GCC unroll 3
        for (int j = 0; j < kVecs; ++j) sum[i][j] = Simd::fma(key, q[j], sum[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) {
        Simd::store(scores + ((k + i) * kVecs + j) * kWidth, sum[i][j]);
        top[j] = Simd::max(sum[i][j], top[j]);
      }
  }
}

/// bias[k][lane] of the panel; lanes past the sequence get 0.
void load_bias(const KernelHead& head, const Panel& panel, std::int64_t q_begin,
               const KeyTile& tile, float* bias) {
  for (std::int64_t lane = 0; lane < panel.width; ++lane) {
    const float* row = head.bias + (q_begin + panel.first_row + lane) * head.bias_q_stride +
                       tile.k_begin * head.bias_k_stride;
    for (std::int64_t k = 0; k < tile.num_keys; ++k)
      bias[k * panel.width + lane] = lane < panel.num_rows ? row[k * head.bias_k_stride] : 0.0f;
  }
}

/// Applies softcap, ALiBi, bias and the mask's bits in that order, and finds the new maxima.
template <int kVecs>
void adjust_scores(const KernelParams& params, const KernelHead& head, const Panel& panel,
                   std::int64_t q_begin, const KeyTile& tile, const TileScratch& scratch,
                   Vec (&top)[kVecs]) {
  const Vec hidden = Simd::set1(-kInfinity);
  const Vec slope = Simd::set1(head.slope);
  Vec query_position[kVecs];
  for (int j = 0; j < kVecs; ++j) {
    float lanes[kWidth];
    for (std::int64_t lane = 0; lane < kWidth; ++lane)
      lanes[lane] = static_cast<float>(q_begin + panel.first_row + j * kWidth + lane +
                                       params.position_offset - tile.k_begin);
    query_position[j] = Simd::load(lanes);
    top[j] = hidden;
  }
  if (params.bias) load_bias(head, panel, q_begin, tile, scratch.bias);
  for (std::int64_t k = 0; k < tile.num_keys; ++k)
    for (int j = 0; j < kVecs; ++j) {
      float* place = scratch.scores + (k * kVecs + j) * kWidth;
      Vec score = Simd::load(place);
      if (params.softcap > 0) {
        const Vec cap = Simd::set1(params.softcap);
        score = Simd::mul(cap, tanh_any(Simd::div(score, cap)));
      }
      if (params.alibi) {
        const Vec distance = Simd::sub(Simd::set1(static_cast<float>(k)), query_position[j]);
        score = Simd::fma(slope, distance, score);
      }
      if (params.bias) {
        const Vec bias = Simd::load(scratch.bias + (k * kVecs + j) * kWidth);
        // -inf hides whatever the score is, NaN included.
        score = Simd::select(Simd::equal(bias, hidden), hidden, Simd::add(score, bias));
      }
      if (tile.key_bits != nullptr && params.change_scores == nullptr)
        score = Simd::select(Simd::mask_from_bits(tile.key_bits[k] >> (j * kWidth)), score, hidden);
      Simd::store(place, score);
      top[j] = Simd::max(score, top[j]);
    }
}

/// Scores become weights exp(score - maximum); the running maximum and sum move on. Returns in
/// `rescale` what earlier output has to be multiplied with.
template <int kVecs>
void weigh_scores(const Panel& panel, const KeyTile& tile, float* scores, const Vec (&top)[kVecs],
                  Vec (&rescale)[kVecs]) {
  Vec base[kVecs], sum[kVecs];
  for (int j = 0; j < kVecs; ++j) {
    const Vec old_max = Simd::load(panel.run_max + j * kWidth);
    const Vec new_max = Simd::max(top[j], old_max);
    // A lane that has seen nothing yet must not compute -inf - -inf.
    const Vec none = Simd::set1(-kInfinity);
    base[j] = Simd::select(Simd::equal(new_max, none), Simd::set1(0.0f), new_max);
    rescale[j] = exp_nonpositive(Simd::sub(old_max, base[j]));
    sum[j] = Simd::mul(Simd::load(panel.run_sum + j * kWidth), rescale[j]);
    Simd::store(panel.run_max + j * kWidth, new_max);
  }
  for (std::int64_t k = 0; k < tile.num_keys; ++k, scores += kVecs * kWidth)
#pragma GCC unroll 3
    for (int j = 0; j < kVecs; ++j) {
      const Vec weight = exp_nonpositive(Simd::sub(Simd::load(scores + j * kWidth), base[j]));
      Simd::store(scores + j * kWidth, weight);
      sum[j] = Simd::add(sum[j], weight);
    }
  for (int j = 0; j < kVecs; ++j) Simd::store(panel.run_sum + j * kWidth, sum[j]);
}

/// out[d][lane] = out * rescale + sum over keys of value[k][d] * weight[k][lane].
template <int kVecs>
void add_values(const KernelParams& params, const Panel& panel, const KeyTile& tile,
                const float* weights, const Vec (&rescale)[kVecs]) {
  const float* values = tile.values;
  for (std::int64_t d = 0; d < params.head_dim_v; d += kRows) {
    float* out = panel.out + d * kVecs * kWidth;
    Vec sum[kRows][kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j)
        sum[i][j] = Simd::mul(Simd::load(out + (i * kVecs + j) * kWidth), rescale[j]);
    const float* weight = weights;
    for (std::int64_t k = 0; k < tile.num_keys; ++k, weight += kVecs * kWidth, values += kRows) {
      Vec w[kVecs];
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) w[j] = Simd::load(weight + j * kWidth);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec value = Simd::set1(values[i]);
#pragma GCC unroll 3
        for (int j = 0; j < kVecs; ++j) sum[i][j] = Simd::fma(value, w[j], sum[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVecs; ++j) Simd::store(out + (i * kVecs + j) * kWidth, sum[i][j]);
  }
}

/// The same where a value is infinite or NaN: a weight of 0 must then add nothing.
template <int kVecs>
void add_values_skipping(const KernelParams& params, const Panel& panel, const KeyTile& tile,
                         const float* weights, const Vec (&rescale)[kVecs]) {
  const Vec zero = Simd::set1(0.0f);
  for (std::int64_t d = 0; d < params.head_dim_v; ++d)
    for (int j = 0; j < kVecs; ++j) {
      float* out = panel.out + (d * kVecs + j) * kWidth;
      const float* values = tile.values + d / kRows * kRows * tile.num_keys + d % kRows;
      // Output that is infinite already stays so unless it is forgotten altogether.
      Vec sum =
          Simd::select(Simd::equal(rescale[j], zero), zero, Simd::mul(Simd::load(out), rescale[j]));
      for (std::int64_t k = 0; k < tile.num_keys; ++k) {
        const Vec weight = Simd::load(weights + (k * kVecs + j) * kWidth);
        const Vec more = Simd::fma(Simd::set1(values[k * kRows]), weight, sum);
        sum = Simd::select(Simd::equal(weight, zero), sum, more);
      }
      Simd::store(out, sum);
    }
}

/// The caller's function, the mask's bits and the maximum, after everything else.
template <int kVecs>
void change_scores(const KernelParams& params, const KernelHead& head, const Panel& panel,
                   std::int64_t q_begin, const KeyTile& tile, float* scores, Vec (&top)[kVecs]) {
  params.change_scores(params, *head.score_head,
                       {scores, kVecs * kWidth, q_begin + panel.first_row, panel.num_rows,
                        tile.k_begin, tile.num_keys});
  const Vec hidden = Simd::set1(-kInfinity);
  for (int j = 0; j < kVecs; ++j) top[j] = hidden;
  for (std::int64_t k = 0; k < tile.num_keys; ++k)
    for (int j = 0; j < kVecs; ++j) {
      float* place = scores + (k * kVecs + j) * kWidth;
      Vec score = Simd::load(place);
      if (tile.key_bits != nullptr)
        score = Simd::select(Simd::mask_from_bits(tile.key_bits[k] >> (j * kWidth)), score, hidden);
      Simd::store(place, score);
      top[j] = Simd::max(score, top[j]);
    }
}

template <int kVecs>
void visit_tile(const KernelParams& params, const KernelHead& head, const Panel& panel,
                std::int64_t q_begin, const KeyTile& tile, const TileScratch& scratch) {
  Vec top[kVecs], rescale[kVecs];
  score_tile<kVecs>(params, panel, tile, scratch.scores, top);
  if (params.softcap > 0 || params.alibi || params.bias || tile.key_bits != nullptr)
    adjust_scores<kVecs>(params, head, panel, q_begin, tile, scratch, top);
  if (params.change_scores != nullptr)
    change_scores<kVecs>(params, head, panel, q_begin, tile, scratch.scores, top);
  weigh_scores<kVecs>(panel, tile, scratch.scores, top, rescale);
  if (tile.values_finite)
    add_values<kVecs>(params, panel, tile, scratch.scores, rescale);
  else
    add_values_skipping<kVecs>(params, panel, tile, scratch.scores, rescale);
}

}  // namespace
}  // namespace stof::cpu
