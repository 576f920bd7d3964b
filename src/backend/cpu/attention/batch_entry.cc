#include "backend/cpu/attention/batch_entry.h"

#include <utility>

#include "core/check.h"
#include "mask/node.h"

namespace stof::cpu {
namespace {

class BatchEntry final : public mask::Node {
 public:
  BatchEntry(std::shared_ptr<const mask::Node> child, std::int64_t entry)
      : child_(std::move(child)), entry_(entry) {}

  bool visible(std::int64_t, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child_->visible(entry_, h, q, k);
  }
  mask::TileClass classify(std::int64_t, std::int64_t h,
                           const mask::TileRect& rect) const override {
    return child_->classify(entry_, h, rect);
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return child_->row_bits(entry_, h, q, k_begin);
  }
  std::int64_t head_extent() const override { return child_->head_extent(); }
  mask::Spec spec() const override { return {"batch_entry", {{"entry", entry_}}, {child_}}; }

 private:
  std::shared_ptr<const mask::Node> child_;
  std::int64_t entry_;
};

}  // namespace

mask::Mask batch_entry(const mask::Mask& mask, const mask::ScoreShape& shape,
                       mask::Alignment alignment, std::int64_t entry) {
  mask::BindContext context{shape, alignment};
  context.under_shift = true;  // the one case where an array may be longer than the shape
  auto node = mask.node().bind(context);
  if (node == nullptr) node = mask.shared_node();
  STOF_CHECK(node->batch_extent() <= 1 || node->batch_extent() == shape.batch, kInvalidArgument,
             "mask: expected a batch extent of 1 or {} (the sequences), got {}", shape.batch,
             node->batch_extent());
  return mask::Mask(std::make_shared<BatchEntry>(std::move(node), entry));
}

}  // namespace stof::cpu
