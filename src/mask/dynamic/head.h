#pragma once
// One head as pruners see it, and what they share.

#include <cstdint>
#include <vector>

#include "mask/spec.h"
#include "stof/prune.h"

namespace stof::mask {

/// Float32 rows, unit stride inside.
struct FloatRows {
  const float* data = nullptr;
  std::int64_t rows = 0, dim = 0, stride = 0;

  const float* row(std::int64_t i) const { return data + i * stride; }
};

/// Queries and keys of one (batch entry, query head) and the pairs there are.
struct PruneHead {
  FloatRows q, k;
  float scale = 1;
  const Mask* base = nullptr;     ///< bound
  std::int64_t b = 0, h = 0;      ///< to ask `base`
  std::int64_t query_offset = 0;  ///< the position of query 0
  int num_threads = 1;

  bool sees_all() const { return base->classify(b, h, {0, q.rows, 0, k.rows}) == TileClass::kFull; }
};

/// scale * a.b: the products are exact in double, their sum is rounded once at the end.
float score_of(const float* a, const float* b, std::int64_t dim, float scale);

/// Whether a score is taken before another: larger first, NaN last, equal ones by index.
inline bool taken_before(float a, std::int64_t a_index, float b, std::int64_t b_index) {
  const bool a_is_nan = a != a, b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return b_is_nan;
  if (!a_is_nan && a != b) return a > b;
  return a_index < b_index;
}

/// Keys laid out for scores of whole rows.
class KeyPanels {
 public:
  explicit KeyPanels(const FloatRows& keys);
  /// scores[k] = score_of(query, key k) for all keys; room for padded_keys().
  void scores(const float* query, float scale, float* scores) const;
  std::int64_t padded_keys() const { return padded_; }

 private:
  static constexpr std::int64_t kWidth = 16;  ///< accumulators that fit the registers
  std::int64_t dim_, padded_;
  std::vector<float> panels_;  ///< [padded / kWidth, dim, kWidth]
};

/// What a method made of a head.
struct PrunedHead {
  Mask mask;  ///< within the base mask: bound to nothing yet
  PruneRows rows;
};

PrunedHead prune_nm(const PruneHead& head, const PruneSettings& settings);
PrunedHead prune_blocks(const PruneHead& head, const PruneSettings& settings);
PrunedHead prune_vertical_slash(const PruneHead& head, const PruneSettings& settings);

}  // namespace stof::mask
