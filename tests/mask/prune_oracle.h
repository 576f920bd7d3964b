#pragma once
// Pruning by brute force: every pair is looked at, every choice is made by sorting.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "mask/brute_force.h"
#include "stof/prune.h"

namespace stof::mask::testing {

/// Queries and keys in memory of their own: rows of several heads side by side, with gaps.
struct PruneCase {
  ScoreShape shape;
  std::int64_t kv_heads = 1, dim = 1;
  Alignment alignment = Alignment::kTopLeft;
  Mask base;
  std::vector<float> q, k;

  static constexpr std::int64_t kGap = 3;

  PruneInput input() const {
    const std::int64_t qw = shape.num_heads * (dim + kGap), kw = kv_heads * (dim + kGap);
    PruneInput input;
    input.q = {q.data(),
               DType::kFloat32,
               {shape.batch, shape.num_heads, shape.seq_q, dim},
               {shape.seq_q * qw, dim + kGap, qw, 1}};
    input.k = {k.data(),
               DType::kFloat32,
               {shape.batch, kv_heads, shape.seq_kv, dim},
               {shape.seq_kv * kw, dim + kGap, kw, 1}};
    input.scale = 0.5F;
    input.base = base;
    input.alignment = alignment;
    return input;
  }
  void fill(const std::function<float()>& next) {
    q.resize(static_cast<std::size_t>(shape.batch * shape.seq_q * shape.num_heads * (dim + kGap)));
    k.resize(static_cast<std::size_t>(shape.batch * shape.seq_kv * kv_heads * (dim + kGap)));
    for (float& x : q) x = next();
    for (float& x : k) x = next();
  }
  const float* query(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return q.data() + ((b * shape.seq_q + i) * shape.num_heads + h) * (dim + kGap);
  }
  const float* key(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t kv = h * kv_heads / shape.num_heads;
    return k.data() + ((b * shape.seq_kv + i) * kv_heads + kv) * (dim + kGap);
  }
  std::int64_t offset() const {
    return alignment == Alignment::kBottomRight ? shape.seq_kv - shape.seq_q : 0;
  }
  float dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += static_cast<double>(a[d]) * b[d];
    return static_cast<float>(sum / 2);
  }
};

/// Whole numbers, so that sums are exact and ties frequent, and now and then what is not finite.
inline float random_element(bool finite) {
  const std::int64_t x = random_int(-3, 3);
  if (finite || random_int(0, 60) > 0) return static_cast<float>(x);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return x == 0 ? std::nanf("") : x > 0 ? kInfinity : -kInfinity;
}

inline PruneCase random_prune_case(bool finite = false) {
  PruneCase c;
  c.kv_heads = random_int(1, 2);
  c.shape = {random_int(1, 2), c.kv_heads * random_int(1, 2), random_int(1, 40), random_int(1, 70)};
  c.dim = random_int(1, 3);
  if (random_int(0, 1) != 0) c.alignment = Alignment::kBottomRight;
  const std::vector<Mask> bases = {
      all(),
      causal(),
      window(5, 3) | global(1, 2),
      none(),
      random_elements(0.3, 7, true),
      causal() & key_lengths(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape.batch),
                                                       std::min<std::int64_t>(9, c.shape.seq_kv)))};
  c.base = bases[static_cast<std::size_t>(random_int(0, std::ssize(bases) - 1))].bind(c.shape,
                                                                                      c.alignment);
  c.fill([&] { return random_element(finite); });
  return c;
}

/// Indices 0 .. size-1 by score: larger first, NaN last, equal ones as they come.
inline std::vector<std::int64_t> by_score(const std::vector<float>& scores) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < scores.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const float x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
    if (std::isnan(x)) return false;
    return std::isnan(y) || x > y;
  });
  return order;
}

/// keep[q][k] of one head.
using Kept = std::vector<std::vector<bool>>;

inline void expect_kept(const PrunedMask& pruned, std::int64_t b, std::int64_t h,
                        const Kept& kept) {
  for (std::size_t q = 0; q < kept.size(); ++q)
    for (std::size_t k = 0; k < kept[q].size(); ++k)
      if (pruned.mask.visible(b, h, static_cast<std::int64_t>(q), static_cast<std::int64_t>(k)) !=
          kept[q][k])
        RC_FAIL("batch " + std::to_string(b) + ", head " + std::to_string(h) + ", query " +
                std::to_string(q) + ", key " + std::to_string(k));
}

inline Kept nothing_kept(const PruneCase& c) {
  return Kept(static_cast<std::size_t>(c.shape.seq_q),
              std::vector<bool>(static_cast<std::size_t>(c.shape.seq_kv)));
}

inline Kept nm_by_sorting(const PruneCase& c, std::int64_t b, std::int64_t h, std::int64_t n,
                          std::int64_t m) {
  Kept kept = nothing_kept(c);
  for (std::int64_t q = 0; q < c.shape.seq_q; ++q) {
    for (std::int64_t first = 0; first < c.shape.seq_kv; first += m) {
      std::vector<std::int64_t> keys;
      std::vector<float> scores;
      for (std::int64_t k = first; k < std::min(first + m, c.shape.seq_kv); ++k) {
        if (!c.base.visible(b, h, q, k)) continue;
        keys.push_back(k);
        scores.push_back(c.dot(c.query(b, h, q), c.key(b, h, k)));
      }
      const std::vector<std::int64_t> order = by_score(scores);
      for (std::size_t i = 0; i < order.size() && i < static_cast<std::size_t>(n); ++i)
        kept[static_cast<std::size_t>(q)]
            [static_cast<std::size_t>(keys[static_cast<std::size_t>(order[i])])] = true;
    }
  }
  return kept;
}

/// What block pruners know of a head.
struct Blocks {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::vector<bool>> visible, stays;
  std::vector<std::vector<float>> scores;
  /// Visible ones of a row in the order they are taken.
  std::vector<std::vector<std::int64_t>> order;
  std::vector<std::int64_t> num_staying;
};

inline std::vector<float> pooled(const std::vector<const float*>& rows, std::int64_t dim,
                                 PrunePooling pooling) {
  std::vector<float> out(static_cast<std::size_t>(dim));
  for (std::size_t d = 0; d < out.size(); ++d) {
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    bool has_nan = false;
    for (const float* row : rows) {
      sum += row[d];
      most = std::max(most, double{row[d]});
      has_nan |= std::isnan(row[d]);
    }
    if (rows.empty()) continue;
    out[d] =
        static_cast<float>(pooling == PrunePooling::kMean ? sum / static_cast<double>(rows.size())
                           : has_nan                      ? std::nan("")
                                                          : most);
  }
  return out;
}

inline Blocks blocks_by_pairs(const PruneCase& c, std::int64_t b, std::int64_t h,
                              const PruneSettings& s) {
  Blocks blocks;
  const std::int64_t seq_q = c.shape.seq_q, seq_kv = c.shape.seq_kv, size = s.block;
  blocks.rows = (seq_q + size - 1) / size;
  blocks.cols = (seq_kv + size - 1) / size;
  const auto seen = [&](std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
    for (std::int64_t q = q0; q < std::min(q1, seq_q); ++q)
      for (std::int64_t k = k0; k < std::min(k1, seq_kv); ++k)
        if (c.base.visible(b, h, q, k)) return true;
    return false;
  };
  for (std::int64_t r = 0; r < blocks.rows; ++r) {
    std::vector<const float*> queries;
    for (std::int64_t q = r * size; q < std::min((r + 1) * size, seq_q); ++q)
      if (seen(q, q + 1, 0, seq_kv)) queries.push_back(c.query(b, h, q));
    std::vector<bool> visible, stays;
    std::vector<float> scores, ranked;
    std::vector<std::int64_t> sorted, staying, others;
    for (std::int64_t col = 0; col < blocks.cols; ++col) {
      std::vector<const float*> keys;
      bool near = col < s.sink_blocks;
      for (std::int64_t k = col * size; k < std::min((col + 1) * size, seq_kv); ++k)
        if (seen(0, seq_q, k, k + 1)) keys.push_back(c.key(b, h, k));
      for (std::int64_t q = r * size; q < std::min((r + 1) * size, seq_q); ++q) {
        const double block_of_query = std::floor(static_cast<double>(q + c.offset()) / size);
        near |= std::abs(block_of_query - static_cast<double>(col)) < s.local_blocks;
      }
      visible.push_back(seen(r * size, (r + 1) * size, col * size, (col + 1) * size));
      stays.push_back(visible.back() && near);
      scores.push_back(
          c.dot(pooled(queries, c.dim, s.pooling).data(), pooled(keys, c.dim, s.pooling).data()));
    }
    for (const std::int64_t col : by_score(scores)) {
      const auto i = static_cast<std::size_t>(col);
      if (visible[i]) (stays[i] ? staying : others).push_back(col);
    }
    blocks.num_staying.push_back(std::ssize(staying));
    sorted = staying;
    sorted.insert(sorted.end(), others.begin(), others.end());
    blocks.visible.push_back(visible);
    blocks.stays.push_back(stays);
    blocks.scores.push_back(scores);
    blocks.order.push_back(sorted);
  }
  return blocks;
}

/// The base's pairs in the first `count[row]` blocks of each row's order.
inline Kept kept_of_blocks(const PruneCase& c, std::int64_t b, std::int64_t h, const Blocks& blocks,
                           const std::vector<std::int64_t>& count, std::int64_t size) {
  Kept kept = nothing_kept(c);
  for (std::int64_t q = 0; q < c.shape.seq_q; ++q) {
    const auto row = static_cast<std::size_t>(q / size);
    for (std::int64_t i = 0; i < count[row]; ++i) {
      const std::int64_t first = blocks.order[row][static_cast<std::size_t>(i)] * size;
      for (std::int64_t k = first; k < std::min(first + size, c.shape.seq_kv); ++k)
        kept[static_cast<std::size_t>(q)][static_cast<std::size_t>(k)] = c.base.visible(b, h, q, k);
    }
  }
  return kept;
}

}  // namespace stof::mask::testing
