#include "mask/nesting.h"

#include <utility>
#include <vector>

#include "core/check.h"
#include "mask/node.h"

namespace stof::mask {

void check_nesting(const Mask& mask) {
  std::vector<std::pair<std::shared_ptr<const Node>, int>> pending{{mask.shared_node(), 0}};
  while (!pending.empty()) {
    const auto [node, depth] = std::move(pending.back());
    pending.pop_back();
    STOF_CHECK(depth <= kMaxNesting, kInvalidArgument,
               "mask: operators nested deeper than {} levels; split the expression", kMaxNesting);
    for (auto& child : node->spec().children) pending.emplace_back(child, depth + 1);
  }
}

}  // namespace stof::mask
