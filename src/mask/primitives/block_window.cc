// chunked(), block_causal() and block_window(): bands of diagonals between blocks of n tokens.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// lo <= floor(k/block) - floor(q/block) <= hi; positions below 0 belong to no block.
class BlockBand final : public PositionalLeaf {
 public:
  BlockBand(Spec spec, std::int64_t block, std::int64_t lo, std::int64_t hi)
      : PositionalLeaf(std::move(spec)), block_(block), lo_(lo), hi_(hi) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    if (q < 0 || k < 0) return false;
    const std::int64_t d = k / block_ - q / block_;
    return lo_ <= d && d <= hi_;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect);
    if (c.empty) return TileClass::kEmpty;
    const TileRect blocks{c.rect.q_begin / block_, (c.rect.q_end - 1) / block_ + 1,
                          c.rect.k_begin / block_, (c.rect.k_end - 1) / block_ + 1};
    const Diagonals d = diagonals(blocks);
    const TileClass found = classify_span(d.lo, d.hi + 1, lo_, hi_ + 1);
    return found == TileClass::kFull && c.clipped ? TileClass::kPartial : found;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0) return 0;
    const std::int64_t own = q / block_;
    const std::int64_t lo = lo_ == -kUnbounded ? 0 : std::max<std::int64_t>(own + lo_, 0) * block_;
    const std::int64_t hi = hi_ == kUnbounded ? kUnbounded : (own + hi_ + 1) * block_;
    return bits_of_range(k_begin, lo, hi);
  }

 private:
  std::int64_t block_, lo_, hi_;
};

}  // namespace

Mask chunked(std::int64_t n) {
  check_argument("chunked", "n", n, 1);
  return Mask(std::make_shared<BlockBand>(Spec{"chunked", {{"n", n}}, {}}, n, 0, 0));
}

Mask block_causal(std::int64_t n) {
  check_argument("block_causal", "n", n, 1);
  return Mask(std::make_shared<BlockBand>(Spec{"block_causal", {{"n", n}}, {}}, n, -kUnbounded, 0));
}

Mask block_window(std::int64_t block, std::int64_t left, std::int64_t right) {
  left = std::max<std::int64_t>(left, -1);
  right = std::max<std::int64_t>(right, -1);
  check_argument("block_window", "block", block, 1);
  check_argument("block_window", "left", left, -1);
  check_argument("block_window", "right", right, -1);
  // A reach past the largest position is no bound; so reach * block fits in 64 bits.
  const std::int64_t most = kMaxPosition / block;
  return Mask(std::make_shared<BlockBand>(
      Spec{"block_window", {{"block", block}, {"left", left}, {"right", right}}, {}}, block,
      left < 0 || left > most ? -kUnbounded : -left,
      right < 0 || right > most ? kUnbounded : right));
}

}  // namespace stof::mask
