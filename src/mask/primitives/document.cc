// document(): packed sequences.

#include <algorithm>

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class Document final : public Node {
 public:
  explicit Document(IntList lengths) : lengths_(std::move(lengths)) {
    starts_.reserve(lengths_.size() + 1);
    starts_.push_back(0);
    for (const std::int64_t length : lengths_) starts_.push_back(starts_.back() + length);
  }

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    if (!inside(q)) return false;
    const std::size_t d = document_of(q);
    return starts_[d] <= k && k < starts_[d + 1];
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect, starts_.back(), starts_.back());
    if (c.empty) return TileClass::kEmpty;
    const std::size_t q_first = document_of(c.rect.q_begin), q_last = document_of(c.rect.q_end - 1);
    const std::size_t k_first = document_of(c.rect.k_begin), k_last = document_of(c.rect.k_end - 1);
    if (q_last < k_first || k_last < q_first) return TileClass::kEmpty;
    return !c.clipped && q_first == q_last && k_first == k_last ? TileClass::kFull
                                                                : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (!inside(q)) return 0;
    const std::size_t d = document_of(q);
    return bits_of_range(k_begin, starts_[d], starts_[d + 1]);
  }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    return bind_positional(*this, context);
  }
  Spec spec() const override { return {"document", {{"lengths", lengths_}}, {}}; }

 private:
  bool inside(std::int64_t position) const { return position >= 0 && position < starts_.back(); }

  /// Index of the document that holds a position inside; never one of length 0.
  std::size_t document_of(std::int64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                    starts_.begin() - 1);
  }

  IntList lengths_;
  std::vector<std::int64_t> starts_;  ///< [documents + 1]; the last is the sum
};

}  // namespace

Mask document(const std::vector<std::int64_t>& lengths) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    STOF_CHECK(lengths[i] >= 0 && lengths[i] <= kMaxPosition - sum, kInvalidArgument,
               "document(lengths[{}]={}): expected at least 0 and a sum of at most {}", i,
               lengths[i], kMaxPosition);
    sum += lengths[i];
  }
  return Mask(std::make_shared<Document>(lengths));
}

}  // namespace stof::mask
