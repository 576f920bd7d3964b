#include "mask/grid_axis.h"

#include "mask/node.h"
#include "mask/spec.h"

namespace stof::mask {
namespace {

/// What is left of an expression without its binding and what hides nothing.
Spec essence(const Mask& mask) {
  Spec spec = mask.node().spec();
  while (spec.name == "bound" || spec.name == "and") {
    std::shared_ptr<const Node> only;
    for (const auto& child : spec.children) {
      if (spec.name == "and" && child->spec().name == "all") continue;
      if (only != nullptr) return spec;
      only = child;
    }
    if (only == nullptr) return spec;
    spec = only->spec();
  }
  return spec;
}

}  // namespace

std::optional<GridAxes> neighbourhood_axes(const Mask& bound, std::int64_t num_tokens) {
  const Spec spec = essence(bound);
  if (spec.name != "neighbourhood") return std::nullopt;
  const auto list = [&](std::size_t i) -> const IntList& {
    return std::get<IntList>(spec.args[i].second);
  };
  const std::size_t rank = list(0).size();
  GridAxes axes;
  std::int64_t size = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    axes[kGridDims - rank + d] =
        GridAxis(list(0)[d], list(1)[d], list(2)[d], list(3)[d], list(4)[d]);
    size *= list(0)[d];
  }
  if (size != num_tokens) return std::nullopt;
  return axes;
}

}  // namespace stof::mask
