// key_lengths(): right padding, one length per batch entry.

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class KeyLengths final : public Node {
 public:
  explicit KeyLengths(IntList lengths) : lengths_(std::move(lengths)) {}

  bool visible(std::int64_t b, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && k < length(b);
  }
  TileClass classify(std::int64_t b, std::int64_t, const TileRect& rect) const override {
    return product(classify_span(rect.q_begin, rect.q_end, 0, kUnbounded),
                   classify_span(rect.k_begin, rect.k_end, 0, length(b)));
  }
  std::uint64_t row_bits(std::int64_t b, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    return q < 0 ? 0 : bits_of_range(k_begin, 0, length(b));
  }
  std::int64_t batch_extent() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    const ScoreShape& shape = context.shape;
    STOF_CHECK(batch_extent() == 1 || batch_extent() == shape.batch, kInvalidArgument,
               "key_lengths: expected 1 or {} lengths (the batch of {}), got {}", shape.batch,
               shape.to_string(), batch_extent());
    for (std::size_t i = 0; i < lengths_.size(); ++i)
      STOF_CHECK(context.free_lengths || lengths_[i] <= shape.seq_kv, kInvalidArgument,
                 "key_lengths(lengths[{}]={}): expected at most the {} keys of {}", i, lengths_[i],
                 shape.seq_kv, shape.to_string());
    return nullptr;
  }
  Spec spec() const override { return {"key_lengths", {{"lengths", lengths_}}, {}}; }

 private:
  std::int64_t length(std::int64_t b) const {
    return lengths_[entry_index("key_lengths", "batch", b, batch_extent())];
  }

  IntList lengths_;
};

}  // namespace

Mask key_lengths(const std::vector<std::int64_t>& lengths) {
  STOF_CHECK(!lengths.empty(), kInvalidArgument,
             "key_lengths(lengths=[]): expected one length, or one per batch entry");
  for (std::size_t i = 0; i < lengths.size(); ++i)
    STOF_CHECK(lengths[i] >= 0 && lengths[i] <= kMaxPosition, kInvalidArgument,
               "key_lengths(lengths[{}]={}): expected 0 to {}", i, lengths[i], kMaxPosition);
  return Mask(std::make_shared<KeyLengths>(lengths));
}

}  // namespace stof::mask
