// all() and none().

#include "mask/node.h"

namespace stof::mask {
namespace {

class Constant final : public Leaf {
 public:
  explicit Constant(bool value) : Leaf({value ? "all" : "none", {}, {}}), value_(value) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const override {
    return value_;
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect&) const override {
    return value_ ? TileClass::kFull : TileClass::kEmpty;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const override {
    return value_ ? ~std::uint64_t{0} : 0;
  }
  std::int64_t diagonal_period() const override { return 1; }

 private:
  bool value_;
};

}  // namespace

Mask all() { return Mask(std::make_shared<Constant>(true)); }

Mask none() { return Mask(std::make_shared<Constant>(false)); }

}  // namespace stof::mask
