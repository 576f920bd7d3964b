// dilated() and strided(): periodic in k - q.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// |q-k| <= reach and (q-k) a multiple of rate.
class Dilated final : public PositionalLeaf {
 public:
  Dilated(std::int64_t reach, std::int64_t rate)
      : PositionalLeaf({"dilated", {{"window", reach}, {"rate", rate}}, {}}),
        reach_(reach),
        rate_(rate) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    const std::int64_t d = k - q;
    return -reach_ <= d && d <= reach_ && d % rate_ == 0;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const Diagonals d = diagonals(rect);
    if (!has_multiple(std::max(d.lo, -reach_), std::min(d.hi, reach_), rate_))
      return TileClass::kEmpty;
    const bool inside = -reach_ <= d.lo && d.hi <= reach_;
    // Two neighbouring diagonals are both multiples only of 1.
    return inside && (rate_ == 1 || d.lo == d.hi) ? TileClass::kFull : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    const std::uint64_t near = bits_of_range(k_begin, q - reach_, q + reach_ + 1);
    return near == 0 ? 0 : near & bits_of_multiples(k_begin, q, rate_);
  }
  std::int64_t diagonal_period() const override { return 1; }

 private:
  std::int64_t reach_, rate_;
};

/// |q-k| <= local or (q-k) a multiple of stride.
class Strided final : public PositionalLeaf {
 public:
  Strided(std::int64_t local, std::int64_t stride)
      : PositionalLeaf({"strided", {{"local", local}, {"stride", stride}}, {}}),
        local_(local),
        stride_(stride) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    const std::int64_t d = k - q;
    return (-local_ <= d && d <= local_) || d % stride_ == 0;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const Diagonals d = diagonals(rect);
    const bool near = std::max(d.lo, -local_) <= std::min(d.hi, local_);
    if (!near && !has_multiple(d.lo, d.hi, stride_)) return TileClass::kEmpty;
    return only_multiples(d.lo, std::min(d.hi, -local_ - 1)) &&
                   only_multiples(std::max(d.lo, local_ + 1), d.hi)
               ? TileClass::kFull
               : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    return bits_of_range(k_begin, q - local_, q + local_ + 1) |
           bits_of_multiples(k_begin, q, stride_);
  }
  std::int64_t diagonal_period() const override { return 1; }

 private:
  /// Every value of [lo, hi], which may be empty, is a multiple of stride_.
  bool only_multiples(std::int64_t lo, std::int64_t hi) const {
    return lo > hi || stride_ == 1 || (lo == hi && lo % stride_ == 0);
  }

  std::int64_t local_, stride_;
};

}  // namespace

Mask dilated(std::int64_t window, std::int64_t rate) {
  check_argument("dilated", "window", window, 0);
  check_argument("dilated", "rate", rate, 1);
  return Mask(std::make_shared<Dilated>(window, rate));
}

Mask strided(std::int64_t local, std::int64_t stride) {
  check_argument("strided", "local", local, 0);
  check_argument("strided", "stride", stride, 1);
  return Mask(std::make_shared<Strided>(local, stride));
}

}  // namespace stof::mask
