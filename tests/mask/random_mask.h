#pragma once
// Draws mask expressions that use every primitive and operator; for RapidCheck properties of any
// layer. Call inside a property; a failure is replayed with the seed that RapidCheck prints.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "mask/brute_force.h"
#include "stof/mask.h"

namespace stof::mask::testing {

namespace random_mask_detail {

using I = std::int64_t;

inline I extent_or_one(I extent) { return random_int(0, 1) != 0 ? extent : 1; }

inline std::vector<I> cut(I total) {
  std::vector<I> sizes;
  while (total > 0) {
    sizes.push_back(random_int(1, std::min<I>(total, std::max<I>(total / 2, 3))));
    total -= sizes.back();
  }
  return sizes;
}

inline Mask random_dense(const ScoreShape& s) {
  const I batch = extent_or_one(s.batch), heads = extent_or_one(s.num_heads);
  const I rows = extent_or_one(s.seq_q), period = random_int(1, 90);
  const auto salt = static_cast<std::uint64_t>(random_int(0, 1 << 20));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(batch * heads * rows * s.seq_kv));
  // Blocks and noise, so that some tiles are uniform.
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const I k = static_cast<I>(i) % s.seq_kv, q = static_cast<I>(i) / s.seq_kv;
    const std::uint64_t cell = static_cast<std::uint64_t>(k / period * 31 + q / period * 17) + salt;
    bytes[i] = (cell * 0x9e3779b97f4a7c15ULL >> 62) != 0 ? 1 : 0;
  }
  return dense(TensorView(bytes.data(), DType::kBool, {batch, heads, rows, s.seq_kv}));
}

inline Mask random_block_list(const ScoreShape& s) {
  BlockList list;
  I num_rows = 0, num_cols = 0;
  if (random_int(0, 1) != 0) {
    list.row_sizes = cut(s.seq_q);
    num_rows = static_cast<I>(list.row_sizes.size());
  }
  if (num_rows == 0) {
    list.block_q = random_int(1, 40);
    num_rows = (s.seq_q + list.block_q - 1) / list.block_q;
  }
  if (random_int(0, 1) != 0) {
    list.col_sizes = cut(s.seq_kv);
    num_cols = static_cast<I>(list.col_sizes.size());
  }
  if (num_cols == 0) {
    list.block_kv = random_int(1, 40);
    num_cols = (s.seq_kv + list.block_kv - 1) / list.block_kv;
  }
  const I fill = random_int(0, 10), heads = extent_or_one(s.num_heads);
  for (I h = 0; h < heads; ++h) {
    auto& head = list.heads.emplace_back(static_cast<std::size_t>(num_rows));
    for (auto& row : head)
      for (I c = 0; c < num_cols; ++c)
        if (random_int(0, 9) < fill) row.push_back(static_cast<std::int32_t>(c));
  }
  return block_list(std::move(list));
}

inline Mask random_neighbourhood(I seq) {
  Neighbourhood n;
  const I rank = random_int(1, 3);
  for (I d = 0; d < rank; ++d) {
    n.grid.push_back(random_int(1, rank == 1 ? seq : rank == 2 ? 16 : 7));
    n.kernel.push_back(random_int(1, 9));
    n.dilation.push_back(random_int(1, 3));
    n.tile.push_back(random_int(1, 4));
    n.shift.push_back(random_int(-3, 3));
  }
  return neighbourhood(n);
}

inline Mask random_intervals(I seq_q, I seq_kv) {
  HiddenRows hidden;
  for (I k = 0; k < seq_kv; ++k) {
    hidden.begin.push_back(random_int(0, seq_q));
    hidden.end.push_back(std::min(hidden.begin.back() + random_int(0, 64), seq_q));
  }
  return intervals({hidden});
}

inline Mask random_tree(const ScoreShape& s) {
  std::vector<I> parents;
  for (I i = 0; i < s.seq_q; ++i) parents.push_back(random_int(std::max<I>(i - 5, -1), i - 1));
  return tree(parents, s.seq_kv - s.seq_q);
}

inline Mask random_primitive(const ScoreShape& s) {
  const I longest = std::max(s.seq_q, s.seq_kv);
  const auto length = [&] { return random_int(0, longest); };
  const auto small = [&] { return random_int(1, std::max<I>(longest / 2, 1)); };
  const auto seed = static_cast<std::uint64_t>(random_int(0, 1000));
  const bool per_head = random_int(0, 1) != 0;
  switch (random_int(0, 24)) {
    case 0:
      return all();
    case 1:
      return none();
    case 2:
      return causal(random_int(-10, 10));
    case 3:
      return window(random_int(-1, longest), random_int(-1, longest));
    case 4:
      return chunked(small());
    case 5:
      return block_causal(small());
    case 6:
      return block_window(small(), random_int(-1, 2), random_int(-1, 2));
    case 7:
      return prefix(length());
    case 8:
      return sink(length());
    case 9:
      return global(length() / 4, length() / 4);
    case 10:
      return global_tokens({length(), length(), length()}, random_int(0, 1) != 0, per_head);
    case 11:
      return dilated(length(), random_int(1, 8));
    case 12:
      return strided(length() / 4, small());
    case 13: {
      const I stride = small();
      return summary(stride, random_int(0, stride));
    }
    case 14:
      return document(cut(length()));
    case 15: {
      std::vector<I> lengths(static_cast<std::size_t>(extent_or_one(s.batch)));
      for (I& value : lengths) value = random_int(0, s.seq_kv);
      return key_lengths(lengths);
    }
    case 16:
      return random_neighbourhood(longest);
    case 17:
      return s.seq_q <= s.seq_kv ? random_tree(s) : causal();
    case 18:
      return random_block_list(s);
    case 19:
      return random_blocks_count(random_int(1, 40), random_int(0, 4), seed, per_head);
    case 20:
      return random_blocks_rate(random_int(1, 40), static_cast<double>(random_int(0, 10)) / 10,
                                seed, per_head);
    case 21:
      return random_elements(static_cast<double>(random_int(0, 10)) / 10, seed, per_head);
    case 22:
      return random_intervals(s.seq_q, s.seq_kv);
    case 23:
      return random_dense(s);
    default:
      return bigbird(random_int(1, 40), random_int(0, 2), random_int(0, 2), random_int(0, 3), seed);
  }
}

}  // namespace random_mask_detail

/// A random expression, not yet bound, that bind() accepts for this shape with either alignment.
/// Lengths are at least 1; at up to a few hundred tokens it takes well under a millisecond.
inline Mask random_mask(const ScoreShape& shape, int depth = 3) {
  using namespace random_mask_detail;
  if (depth == 0) return random_primitive(shape);
  const auto child = [&] { return random_mask(shape, depth - 1); };
  const auto children = [&](I count) {
    std::vector<Mask> masks;
    for (I i = 0; i < count; ++i) masks.push_back(child());
    return masks;
  };
  switch (random_int(0, 10)) {
    case 0:
    case 1:
      return child() & child();
    case 2:
    case 3:
      return child() | child();
    case 4:
      return ~child();
    case 5:
      return shifted(child(), random_int(-20, 20), random_int(-20, 20));
    case 6:
      return per_head(children(extent_or_one(shape.num_heads)));
    case 7:
      return per_batch(children(extent_or_one(shape.batch)));
    case 8: {
      const Mask mask = child();
      return batch_entry(mask, random_int(0, std::max<I>(mask.batch_extent(), 1) - 1));
    }
    default:
      return random_primitive(shape);
  }
}

/// A shape of up to `longest` tokens, 3 batch entries and 3 heads.
inline ScoreShape random_shape(std::int64_t longest = 150) {
  return {random_int(1, 3), random_int(1, 3), random_int(1, longest), random_int(1, longest)};
}

}  // namespace stof::mask::testing
