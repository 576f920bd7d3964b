#pragma once
// A mask given by a plain array, for tests of what reads masks: it refuses positions outside the
// array, and classifies as vaguely as Mask::classify() may.

#include <rapidcheck.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mask/node.h"
#include "stof/mask.h"

namespace stof::mask::testing {

/// visible[((b * heads + h) * seq_q + q) * seq_kv + k]
struct BoolArray {
  ScoreShape shape;
  std::int64_t batch_extent = 1, head_extent = 1;
  std::vector<std::uint8_t> visible;

  bool at(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
    const std::int64_t plane =
        (batch_extent == 1 ? 0 : b) * head_extent + (head_extent == 1 ? 0 : h);
    return visible[static_cast<std::size_t>((plane * shape.seq_q + q) * shape.seq_kv + k)] != 0;
  }
};

enum class Classifies { kExactly, kAlwaysPartial };

class ArrayNode final : public Node {
 public:
  ArrayNode(BoolArray array, Classifies classifies)
      : array_(std::move(array)), classifies_(classifies) {}

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    const ScoreShape& s = array_.shape;
    if (b < 0 || h < 0 || q < 0 || k < 0 || b >= s.batch || h >= s.num_heads || q >= s.seq_q ||
        k >= s.seq_kv)
      throw std::out_of_range("query " + std::to_string(q) + ", key " + std::to_string(k) +
                              " of a mask of " + s.to_string());
    return array_.at(b, h, q, k);
  }

  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    bool some = false, every = true;
    for (std::int64_t q = rect.q_begin; q < rect.q_end; ++q)
      for (std::int64_t k = rect.k_begin; k < rect.k_end; ++k) {
        const bool now = visible(b, h, q, k);
        some |= now;
        every &= now;
      }
    if (classifies_ == Classifies::kAlwaysPartial) return TileClass::kPartial;
    return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
  }

  std::int64_t batch_extent() const override { return array_.batch_extent; }
  std::int64_t head_extent() const override { return array_.head_extent; }
  Spec spec() const override { return {"array", {}, {}}; }

 private:
  const BoolArray array_;
  const Classifies classifies_;
};

inline Mask array_mask(const BoolArray& array, Classifies classifies = Classifies::kExactly) {
  return Mask(std::make_shared<ArrayNode>(array, classifies));
}

/// Patches of nothing, everything and noise, on a grid that does not match any tile; so all classes
/// of tiles appear. Sides of 1 to 200; planes are often equal.
inline BoolArray random_array() {
  BoolArray array;
  const auto side = [](int high) {
    return static_cast<std::int64_t>(*rc::gen::resize(100, rc::gen::inRange(1, high + 1)));
  };
  array.shape = {side(2), side(3), side(200), side(200)};
  array.batch_extent = *rc::gen::element<std::int64_t>(1, array.shape.batch);
  array.head_extent = *rc::gen::element<std::int64_t>(1, array.shape.num_heads);
  const std::int64_t patch_q = side(100), patch_k = side(100);
  std::uint64_t state = *rc::gen::resize(100, rc::gen::arbitrary<std::uint64_t>());
  const auto next = [&state] {  // splitmix64, to spend one RapidCheck draw per array
    std::uint64_t z = (state += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  };
  const std::int64_t patches_k = (array.shape.seq_kv + patch_k - 1) / patch_k;
  const std::int64_t patches_q = (array.shape.seq_q + patch_q - 1) / patch_q;
  const std::int64_t plane = array.shape.seq_q * array.shape.seq_kv;
  for (std::int64_t p = 0; p < array.batch_extent * array.head_extent; ++p) {
    if (p > 0 && next() % 2 == 0) {
      const auto source = static_cast<std::ptrdiff_t>(next() % static_cast<std::uint64_t>(p));
      const std::vector<std::uint8_t> copy(array.visible.begin() + source * plane,
                                           array.visible.begin() + (source + 1) * plane);
      array.visible.insert(array.visible.end(), copy.begin(), copy.end());
      continue;
    }
    std::vector<std::uint64_t> kinds(static_cast<std::size_t>(patches_q * patches_k));
    for (std::uint64_t& kind : kinds) kind = next() % 3;
    for (std::int64_t q = 0; q < array.shape.seq_q; ++q)
      for (std::int64_t k = 0; k < array.shape.seq_kv; ++k) {
        const std::uint64_t kind =
            kinds[static_cast<std::size_t>(q / patch_q * patches_k + k / patch_k)];
        array.visible.push_back(kind == 2 ? next() % 2 == 0 : kind == 1);
      }
  }
  return array;
}

}  // namespace stof::mask::testing
