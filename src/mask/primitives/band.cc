// causal() and window(): bands of diagonals.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// lo <= k - q <= hi.
class Band final : public PositionalLeaf {
 public:
  Band(Spec spec, std::int64_t lo, std::int64_t hi)
      : PositionalLeaf(std::move(spec)), lo_(lo), hi_(hi) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return lo_ <= k - q && k - q <= hi_;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const Diagonals d = diagonals(rect);
    return classify_span(d.lo, d.hi + 1, lo_, hi_ + 1);
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    return bits_of_range(k_begin, q + lo_, q + hi_ + 1);
  }
  std::int64_t diagonal_period() const override { return 1; }

 private:
  std::int64_t lo_, hi_;
};

}  // namespace

Mask causal(std::int64_t offset) {
  check_argument("causal", "offset", offset, -kMaxPosition);
  return Mask(
      std::make_shared<Band>(Spec{"causal", {{"offset", offset}}, {}}, -kUnbounded, offset));
}

Mask window(std::int64_t left, std::int64_t right) {
  // Every unbounded side is spelled -1, so that equal masks have equal specs.
  left = std::max<std::int64_t>(left, -1);
  right = std::max<std::int64_t>(right, -1);
  check_argument("window", "left", left, -1);
  check_argument("window", "right", right, -1);
  return Mask(std::make_shared<Band>(Spec{"window", {{"left", left}, {"right", right}}, {}},
                                     left < 0 ? -kUnbounded : -left,
                                     right < 0 ? kUnbounded : right));
}

}  // namespace stof::mask
