// random_blocks_rate() and random_elements(): every cell is drawn by itself.

#include "mask/arguments.h"
#include "mask/node.h"
#include "mask/random.h"

namespace stof::mask {
namespace {

/// Cells that classify() looks at before it settles for kPartial. Both kinds of cell turn up long
/// before, unless the rate is next to 0 or 1.
constexpr std::int64_t kMaxCells = std::int64_t{1} << 20;

/// Cells of block x block tokens, visible with a probability.
class RandomCells final : public PositionalLeaf {
 public:
  RandomCells(Spec spec, std::int64_t block, double rate, std::uint64_t seed, bool per_head)
      : PositionalLeaf(std::move(spec)),
        block_(block),
        threshold_(rate_threshold(rate)),
        seed_(seed),
        per_head_(per_head) {}

  bool visible(std::int64_t, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && drawn(row(h, q), k / block_);
  }
  TileClass classify(std::int64_t, std::int64_t h, const TileRect& rect) const override {
    const ClippedRect c = clip(rect);
    if (c.empty || threshold_ == 0) return TileClass::kEmpty;
    if (threshold_ == std::uint64_t{1} << 53)
      return c.clipped ? TileClass::kPartial : TileClass::kFull;
    bool some = false, every = !c.clipped;
    std::int64_t left = kMaxCells;
    const std::int64_t col_begin = c.rect.k_begin / block_, col_end = (c.rect.k_end - 1) / block_;
    for (std::int64_t r = c.rect.q_begin / block_; r <= (c.rect.q_end - 1) / block_; ++r) {
      const RandomRow keys = row(h, r * block_);
      for (std::int64_t col = col_begin; col <= col_end; ++col) {
        if (drawn(keys, col))
          some = true;
        else
          every = false;
        if ((some && !every) || --left == 0) return TileClass::kPartial;
      }
    }
    return every ? TileClass::kFull : some ? TileClass::kPartial : TileClass::kEmpty;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0 || k_begin + 64 <= 0) return 0;
    const RandomRow keys = row(h, q);
    std::uint64_t bits = 0;
    for (std::int64_t col = std::max<std::int64_t>(k_begin, 0) / block_;
         col <= (k_begin + 63) / block_; ++col)
      if (drawn(keys, col)) bits |= bits_of_range(k_begin, col * block_, (col + 1) * block_);
    return bits;
  }
  std::int64_t head_extent() const override { return per_head_ ? 0 : 1; }

 private:
  RandomRow row(std::int64_t h, std::int64_t q) const {
    return {seed_, per_head_ ? h : 0, q / block_};
  }
  bool drawn(const RandomRow& keys, std::int64_t col) const {
    return keys.key(col) >> 11 < threshold_;
  }

  std::int64_t block_;
  std::uint64_t threshold_;
  std::uint64_t seed_;
  bool per_head_;
};

void check_rate(const char* mask, double rate) {
  STOF_CHECK(rate >= 0 && rate <= 1, kInvalidArgument, "{}(rate={}): expected 0 to 1", mask, rate);
}

}  // namespace

Mask random_blocks_rate(std::int64_t block, double rate, std::uint64_t seed, bool per_head) {
  check_argument("random_blocks_rate", "block", block, 1);
  check_rate("random_blocks_rate", rate);
  return Mask(std::make_shared<RandomCells>(
      Spec{"random_blocks_rate",
           {{"block", block}, {"rate", rate}, {"seed", seed}, {"per_head", per_head}},
           {}},
      block, rate, seed, per_head));
}

Mask random_elements(double rate, std::uint64_t seed, bool per_head) {
  check_rate("random_elements", rate);
  return Mask(std::make_shared<RandomCells>(
      Spec{"random_elements", {{"rate", rate}, {"seed", seed}, {"per_head", per_head}}, {}}, 1,
      rate, seed, per_head));
}

}  // namespace stof::mask
