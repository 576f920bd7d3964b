#include "mask/node.h"

namespace stof::mask {

std::uint64_t Node::row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                             std::int64_t k_begin) const {
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; ++i)
    bits |= static_cast<std::uint64_t>(visible(b, h, q, k_begin + i)) << i;
  return bits;
}

std::shared_ptr<const Node> Node::bind(const BindContext&) const { return nullptr; }

std::shared_ptr<const Node> bind_positional(const Node& node, const BindContext& context) {
  const std::int64_t offset = context.query_offset();
  if (offset == 0) return nullptr;
  return shifted(Mask(node.shared_from_this()), offset, 0).shared_node();
}

}  // namespace stof::mask
