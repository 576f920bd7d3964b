// summary(): the last columns of every stride.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class Summary final : public PositionalLeaf {
 public:
  Summary(std::int64_t stride, std::int64_t count)
      : PositionalLeaf({"summary", {{"stride", stride}, {"count", count}}, {}}),
        stride_(stride),
        count_(count) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && k % stride_ >= stride_ - count_;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect);
    if (c.empty) return TileClass::kEmpty;
    const std::int64_t found = columns_below(c.rect.k_end) - columns_below(c.rect.k_begin);
    if (found == 0) return TileClass::kEmpty;
    return !c.clipped && found == rect.k_end - rect.k_begin ? TileClass::kFull
                                                            : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0 || count_ == 0) return 0;
    std::uint64_t bits = 0;
    const std::int64_t first = std::max<std::int64_t>(k_begin, 0) / stride_ * stride_;
    for (std::int64_t end = first + stride_; end - count_ < k_begin + 64; end += stride_)
      bits |= bits_of_range(k_begin, end - count_, end);
    return bits;
  }

 private:
  /// Summary columns in [0, k).
  std::int64_t columns_below(std::int64_t k) const {
    return k / stride_ * count_ + std::max<std::int64_t>(k % stride_ - (stride_ - count_), 0);
  }

  std::int64_t stride_, count_;
};

}  // namespace

Mask summary(std::int64_t stride, std::int64_t count) {
  check_argument("summary", "stride", stride, 1);
  STOF_CHECK(count >= 0 && count <= stride, kInvalidArgument,
             "summary(stride={}, count={}): expected a count of 0 to stride", stride, count);
  return Mask(std::make_shared<Summary>(stride, count));
}

}  // namespace stof::mask
