// prefix(), sink() and global(): the first rows and columns.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// q >= 0 and 0 <= k < n.
class Prefix final : public PositionalLeaf {
 public:
  Prefix(const char* name, std::int64_t n) : PositionalLeaf({name, {{"n", n}}, {}}), n_(n) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && k < n_;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    return product(classify_span(rect.q_begin, rect.q_end, 0, kUnbounded),
                   classify_span(rect.k_begin, rect.k_end, 0, n_));
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    return q < 0 ? 0 : bits_of_range(k_begin, 0, n_);
  }

 private:
  std::int64_t n_;
};

/// q < rows or k < cols, both at least 0.
class Global final : public PositionalLeaf {
 public:
  Global(std::int64_t rows, std::int64_t cols)
      : PositionalLeaf({"global", {{"rows", rows}, {"cols", cols}}, {}}),
        rows_(rows),
        cols_(cols) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && (q < rows_ || k < cols_);
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect);
    if (c.empty || (c.rect.q_begin >= rows_ && c.rect.k_begin >= cols_)) return TileClass::kEmpty;
    return !c.clipped && (rect.q_end <= rows_ || rect.k_end <= cols_) ? TileClass::kFull
                                                                      : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    return q < 0 ? 0 : bits_of_range(k_begin, 0, q < rows_ ? kUnbounded : cols_);
  }

 private:
  std::int64_t rows_, cols_;
};

}  // namespace

Mask prefix(std::int64_t n) {
  check_argument("prefix", "n", n, 0);
  return Mask(std::make_shared<Prefix>("prefix", n));
}

Mask sink(std::int64_t n) {
  check_argument("sink", "n", n, 0);
  return Mask(std::make_shared<Prefix>("sink", n));
}

Mask global(std::int64_t rows, std::int64_t cols) {
  check_argument("global", "rows", rows, 0);
  check_argument("global", "cols", cols, 0);
  return Mask(std::make_shared<Global>(rows, cols));
}

}  // namespace stof::mask
