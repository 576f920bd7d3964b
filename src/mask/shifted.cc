// shifted().

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class Shifted final : public Node {
 public:
  Shifted(std::shared_ptr<const Node> child, std::int64_t dq, std::int64_t dk)
      : child_(std::move(child)), dq_(dq), dk_(dk) {}

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child_->visible(b, h, q + dq_, k + dk_);
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    return child_->classify(
        b, h, {rect.q_begin + dq_, rect.q_end + dq_, rect.k_begin + dk_, rect.k_end + dk_});
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return child_->row_bits(b, h, q + dq_, k_begin + dk_);
  }
  std::int64_t diagonal_period() const override { return child_->diagonal_period(); }
  std::int64_t batch_extent() const override { return child_->batch_extent(); }
  std::int64_t head_extent() const override { return child_->head_extent(); }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    BindContext inner = context;
    inner.free_lengths = true;
    auto resolved = child_->bind(inner);
    return resolved ? std::make_shared<Shifted>(std::move(resolved), dq_, dk_) : nullptr;
  }
  bool bound() const override { return child_->bound(); }
  Spec spec() const override { return {"shifted", {{"dq", dq_}, {"dk", dk_}}, {child_}}; }

 private:
  std::shared_ptr<const Node> child_;
  std::int64_t dq_, dk_;
};

}  // namespace

Mask shifted(const Mask& m, std::int64_t dq, std::int64_t dk) {
  check_argument("shifted", "dq", dq, -kMaxPosition);
  check_argument("shifted", "dk", dk, -kMaxPosition);
  return Mask(std::make_shared<Shifted>(m.shared_node(), dq, dk));
}

}  // namespace stof::mask
