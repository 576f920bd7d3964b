#include "backend/cpu/attention/batch_entry.h"

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

mask::Mask batch_entry(const mask::Mask& bound, std::int64_t entry) {
  return mask::Mask(std::make_shared<BatchEntry>(bound.shared_node(), entry));
}

}  // namespace stof::cpu
