// and, or, not.

#include <functional>
#include <numeric>

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

using Children = std::vector<std::shared_ptr<const Node>>;

/// Visible where all children are (kAnd) or where one is.
template <bool kAnd>
class Junction final : public Node {
 public:
  explicit Junction(Children children) : children_(std::move(children)) {
    for (const auto& child : children_) {
      batch_extent_ = combine_extents("batch", batch_extent_, child->batch_extent());
      head_extent_ = combine_extents("head", head_extent_, child->head_extent());
    }
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    for (const auto& child : children_)
      if (child->visible(b, h, q, k) != kAnd) return !kAnd;
    return kAnd;
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    constexpr TileClass kDecisive = kAnd ? TileClass::kEmpty : TileClass::kFull;
    bool all_neutral = true;
    for (const auto& child : children_) {
      const TileClass found = child->classify(b, h, rect);
      if (found == kDecisive) return kDecisive;
      all_neutral &= found != TileClass::kPartial;
    }
    return all_neutral ? complement(kDecisive) : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    constexpr std::uint64_t kOnes = ~std::uint64_t{0};
    std::uint64_t bits = kAnd ? kOnes : 0;
    for (const auto& child : children_) {
      const std::uint64_t more = child->row_bits(b, h, q, k_begin);
      bits = kAnd ? bits & more : bits | more;
      if (bits == (kAnd ? 0 : kOnes)) break;
    }
    return bits;
  }
  std::int64_t diagonal_period() const override {
    std::int64_t period = 1;  // 0 with any child's 0
    for (const auto& child : children_) period = std::lcm(period, child->diagonal_period());
    return period;
  }
  std::int64_t batch_extent() const override { return batch_extent_; }
  std::int64_t head_extent() const override { return head_extent_; }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    Children resolved = children_;
    bool changed = false;
    for (auto& child : resolved)
      if (auto other = child->bind(context)) {
        child = std::move(other);
        changed = true;
      }
    return changed ? std::make_shared<Junction>(std::move(resolved)) : nullptr;
  }
  bool bound() const override {
    for (const auto& child : children_)
      if (!child->bound()) return false;
    return true;
  }
  Spec spec() const override { return {kAnd ? "and" : "or", {}, children_}; }
  const Children& children() const { return children_; }

 private:
  Children children_;
  std::int64_t batch_extent_ = 1, head_extent_ = 1;
};

/// Chains become one node, so that a long one is no deep tree.
template <bool kAnd>
Mask join(const Mask& a, const Mask& b) {
  Children children;
  for (const Mask* mask : {&a, &b}) {
    if (const auto* same = dynamic_cast<const Junction<kAnd>*>(&mask->node()))
      children.insert(children.end(), same->children().begin(), same->children().end());
    else
      children.push_back(mask->shared_node());
  }
  return Mask(std::make_shared<Junction<kAnd>>(std::move(children)));
}

/// Flips everything, also positions outside an array's or a document's extents; those that are not
/// in the sequence are never asked for.
class Not final : public Node {
 public:
  explicit Not(std::shared_ptr<const Node> child) : child_(std::move(child)) {}

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return !child_->visible(b, h, q, k);
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    return complement(child_->classify(b, h, rect));
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return ~child_->row_bits(b, h, q, k_begin);
  }
  std::int64_t diagonal_period() const override { return child_->diagonal_period(); }
  std::int64_t batch_extent() const override { return child_->batch_extent(); }
  std::int64_t head_extent() const override { return child_->head_extent(); }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    auto resolved = child_->bind(context);
    return resolved ? std::make_shared<Not>(std::move(resolved)) : nullptr;
  }
  bool bound() const override { return child_->bound(); }
  Spec spec() const override { return {"not", {}, {child_}}; }

 private:
  std::shared_ptr<const Node> child_;
};

}  // namespace

std::int64_t combine_extents(std::string_view what, std::int64_t a, std::int64_t b) {
  STOF_CHECK(a == b || a <= 1 || b <= 1, kInvalidArgument,
             "mask: expected parts with one {} extent, or 1, got {} and {}", what, a, b);
  // 0, "as many as there will be", gives way to a number but not to the broadcast 1.
  if (a <= 1 && b <= 1) return std::min(a, b);
  return std::max(a, b);
}

Mask operator&(const Mask& a, const Mask& b) { return join<true>(a, b); }

Mask operator|(const Mask& a, const Mask& b) { return join<false>(a, b); }

Mask operator~(const Mask& a) { return Mask(std::make_shared<Not>(a.shared_node())); }

}  // namespace stof::mask
