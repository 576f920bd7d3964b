// The node that bind() puts on top: a resolved expression and the shape it was resolved for.

#include "core/check.h"
#include "mask/node.h"
#include "mask/node_factories.h"

namespace stof::mask {
namespace {

bool same_shape(const ScoreShape& a, const ScoreShape& b) {
  return a.batch == b.batch && a.num_heads == b.num_heads && a.seq_q == b.seq_q &&
         a.seq_kv == b.seq_kv;
}

/// "[1, 1, 8192, 8192] top_left"
std::string describe(const BindContext& context) {
  return context.shape.to_string() + ' ' + to_string(context.alignment);
}

class Bound final : public Node {
 public:
  Bound(std::shared_ptr<const Node> child, const BindContext& context)
      : child_(std::move(child)), context_(context) {}

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const override {
    return child_->visible(b, h, q, k);
  }
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const override {
    return child_->classify(b, h, rect);
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const override {
    return child_->row_bits(b, h, q, k_begin);
  }
  std::int64_t diagonal_period() const override { return child_->diagonal_period(); }
  std::int64_t batch_extent() const override {
    const std::int64_t extent = child_->batch_extent();
    return extent == 0 ? context_.shape.batch : extent;
  }
  std::int64_t head_extent() const override {
    const std::int64_t extent = child_->head_extent();
    return extent == 0 ? context_.shape.num_heads : extent;
  }
  std::shared_ptr<const Node> bind(const BindContext& other) const override {
    STOF_CHECK(
        same_shape(context_.shape, other.shape) && context_.query_offset() == other.query_offset(),
        kInvalidArgument,
        "bind: this mask is bound to {}, and can't be used with {}; bind the mask it was "
        "made from instead",
        describe(context_), describe(other));
    return nullptr;
  }
  Spec spec() const override {
    const ScoreShape& s = context_.shape;
    return {"bound",
            {{"batch", s.batch},
             {"heads", s.num_heads},
             {"seq_q", s.seq_q},
             {"seq_kv", s.seq_kv},
             {"bottom_right", context_.alignment == Alignment::kBottomRight}},
            {child_}};
  }

 private:
  std::shared_ptr<const Node> child_;
  BindContext context_;
};

}  // namespace

Mask make_bound(const Mask& child, const ScoreShape& shape, Alignment alignment) {
  STOF_CHECK(shape.batch >= 1 && shape.num_heads >= 1 && shape.seq_q >= 0 && shape.seq_kv >= 0,
             kInvalidArgument,
             "bind: expected a batch and heads of at least 1 and lengths of at least 0, got {}",
             shape.to_string());
  STOF_CHECK(child.batch_extent() <= 1 || child.batch_extent() == shape.batch, kInvalidArgument,
             "mask: expected a batch extent of 1 or {}, got {}", shape.batch, child.batch_extent());
  STOF_CHECK(child.head_extent() <= 1 || child.head_extent() == shape.num_heads, kInvalidArgument,
             "mask: expected a head extent of 1 or {}, got {}", shape.num_heads,
             child.head_extent());
  STOF_CHECK(child.bound(), kInvalidArgument,
             "mask: expected an expression that is resolved, got one that waits for its lengths");
  return Mask(std::make_shared<Bound>(child.shared_node(), BindContext{shape, alignment}));
}

}  // namespace stof::mask
