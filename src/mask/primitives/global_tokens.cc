// global_tokens(): listed rows and columns.

#include <algorithm>

#include "mask/arguments.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

class GlobalTokens final : public Node {
 public:
  /// `tokens` ascend and are distinct.
  GlobalTokens(IntList tokens, bool rows, bool cols)
      : tokens_(std::move(tokens)), rows_(rows), cols_(cols) {}

  bool visible(std::int64_t, std::int64_t, std::int64_t q, std::int64_t k) const override {
    return q >= 0 && k >= 0 && ((rows_ && listed(q)) || (cols_ && listed(k)));
  }
  TileClass classify(std::int64_t, std::int64_t, const TileRect& rect) const override {
    const ClippedRect c = clip(rect);
    if (c.empty) return TileClass::kEmpty;
    const std::int64_t rows = rows_ ? count(c.rect.q_begin, c.rect.q_end) : 0;
    const std::int64_t cols = cols_ ? count(c.rect.k_begin, c.rect.k_end) : 0;
    if (rows == 0 && cols == 0) return TileClass::kEmpty;
    return !c.clipped && (rows == rect.q_end - rect.q_begin || cols == rect.k_end - rect.k_begin)
               ? TileClass::kFull
               : TileClass::kPartial;
  }
  std::uint64_t row_bits(std::int64_t, std::int64_t, std::int64_t q,
                         std::int64_t k_begin) const override {
    if (q < 0) return 0;
    if (rows_ && listed(q)) return bits_of_range(k_begin, 0, kUnbounded);
    if (!cols_) return 0;
    std::uint64_t bits = 0;
    for (auto it = std::lower_bound(tokens_.begin(), tokens_.end(), k_begin);
         it != tokens_.end() && *it < k_begin + 64; ++it)
      bits |= std::uint64_t{1} << (*it - k_begin);
    return bits;
  }
  std::shared_ptr<const Node> bind(const BindContext& context) const override {
    return bind_positional(*this, context);
  }
  Spec spec() const override {
    return {"global_tokens", {{"tokens", tokens_}, {"rows", rows_}, {"cols", cols_}}, {}};
  }

 private:
  bool listed(std::int64_t position) const {
    return std::binary_search(tokens_.begin(), tokens_.end(), position);
  }
  std::int64_t count(std::int64_t begin, std::int64_t end) const {
    return std::lower_bound(tokens_.begin(), tokens_.end(), end) -
           std::lower_bound(tokens_.begin(), tokens_.end(), begin);
  }

  IntList tokens_;
  bool rows_, cols_;
};

}  // namespace

Mask global_tokens(const std::vector<std::int64_t>& tokens, bool rows, bool cols) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    STOF_CHECK(tokens[i] >= 0 && tokens[i] <= kMaxPosition, kInvalidArgument,
               "global_tokens(tokens[{}]={}): expected 0 to {}", i, tokens[i], kMaxPosition);
  IntList sorted = tokens;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return Mask(std::make_shared<GlobalTokens>(std::move(sorted), rows, cols));
}

}  // namespace stof::mask
