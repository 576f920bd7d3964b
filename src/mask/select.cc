// per_head() and per_batch().

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

using Children = std::vector<std::shared_ptr<const Node>>;

/// Hands each question to the child of its head (kHead) or batch entry; one child serves all.
template <bool kHead>
class Select final : public Node {
 public:
  explicit Select(Children children) : children_(std::move(children)) {
    (kHead ? head_extent_ : batch_extent_) = static_cast<std::int64_t>(children_.size());
    for (const auto& child : children_) {
      batch_extent_ = combine_extents("batch", batch_extent_, child->batch_extent());
      head_extent_ = combine_extents("head", head_extent_, child->head_extent());
    }
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child(b, h).visible(b, h, q, k);
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    return child(b, h).classify(b, h, rect);
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return child(b, h).row_bits(b, h, q, k_begin);
  }
  std::int64_t batch_extent() const override { return batch_extent_; }
  std::int64_t head_extent() const override { return head_extent_; }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const auto got = static_cast<std::int64_t>(children_.size());
    const std::int64_t expected = kHead ? context.shape.num_heads : context.shape.batch;
    STOF_CHECK(got == 1 || got == expected, kInvalidArgument,
               "{}: expected 1 or {} masks for scores {}, got {}", kName, expected,
               context.shape.to_string(), got);
    Children resolved = children_;
    bool changed = false;
    for (auto& child : resolved)
      if (auto other = child->bind(context)) {
        child = std::move(other);
        changed = true;
      }
    return changed ? std::make_shared<Select>(std::move(resolved)) : nullptr;
  }
  bool bound() const override {
    for (const auto& child : children_)
      if (!child->bound()) return false;
    return true;
  }
  Spec spec() const override { return {kName, {}, children_}; }

 private:
  static constexpr const char* kName = kHead ? "per_head" : "per_batch";

  const Node& child(std::int64_t b, std::int64_t h) const {
    return *children_[entry_index(kName, kHead ? "head" : "batch", kHead ? h : b,
                                  static_cast<std::int64_t>(children_.size()))];
  }

  Children children_;
  std::int64_t batch_extent_ = 1, head_extent_ = 1;
};

template <bool kHead>
Mask select(const char* name, const std::vector<Mask>& masks) {
  STOF_CHECK(!masks.empty(), kInvalidArgument, "{}(): expected at least one mask", name);
  Children children;
  for (const Mask& mask : masks) children.push_back(mask.shared_node());
  return Mask(std::make_shared<Select<kHead>>(std::move(children)));
}

}  // namespace

Mask per_head(const std::vector<Mask>& masks) { return select<true>("per_head", masks); }

Mask per_batch(const std::vector<Mask>& masks) { return select<false>("per_batch", masks); }

}  // namespace stof::mask
