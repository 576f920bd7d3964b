// per_head(), per_batch() and batch_entry(): masks that differ between heads or batch entries.

#include <algorithm>

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

/// One entry's view of a mask that differs between batch entries.
class BatchEntry final : public Node {
 public:
  BatchEntry(std::shared_ptr<const Node> child, std::int64_t entry)
      : child_(std::move(child)), entry_(entry) {}

  bool visible(std::int64_t, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child_->visible(entry_, h, q, k);
  }
  TileClass classify(std::int64_t, std::int64_t h, const TileRect& rect) const override {
    return child_->classify(entry_, h, rect);
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return child_->row_bits(entry_, h, q, k_begin);
  }
  std::int64_t head_extent() const override { return child_->head_extent(); }

  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    BindContext inner = context;
    inner.shape.batch = std::max<std::int64_t>(child_->batch_extent(), 1);
    inner.free_lengths = true;
    auto resolved = child_->bind(inner);
    return resolved ? std::make_shared<BatchEntry>(std::move(resolved), entry_) : nullptr;
  }
  bool bound() const override { return child_->bound(); }
  Spec spec() const override { return {"batch_entry", {{"entry", entry_}}, {child_}}; }

 private:
  std::shared_ptr<const Node> child_;
  std::int64_t entry_;
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

Mask batch_entry(const Mask& m, std::int64_t entry) {
  const std::int64_t extent = m.batch_extent();
  // An extent of 0 is not yet known: a predicate in b has an answer for any entry.
  STOF_CHECK(entry >= 0 && (extent <= 1 || entry < extent), kInvalidArgument,
             "batch_entry(entry={}): expected 0 to {}", entry,
             extent <= 1 ? kMaxPosition : extent - 1);
  return Mask(std::make_shared<BatchEntry>(m.shared_node(), entry));
}

}  // namespace stof::mask
