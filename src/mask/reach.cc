#include "mask/reach.h"

#include <algorithm>

#include "core/check.h"
#include "mask/node.h"

namespace stof::mask {
namespace {

/// Of a pair (q, k) with k >= sinks: nothing that is farther apart than `visible` is seen, if
/// anything (`far`: pairs however far apart are); all pairs farther apart than `constant` are alike
/// but for which of the first keys theirs is.
struct Distances {
  std::int64_t visible = 0, constant = 0, sinks = 0;
  bool far = false;
};

std::int64_t argument(const Spec& spec, const char* name) {
  for (const auto& [field, value] : spec.args)
    if (field == name) return std::get<std::int64_t>(value);
  throw_error(ErrorCode::kInternal, "mask {}: has no argument {}", spec.name, name);
}

std::optional<Distances> distances_of(const Node& node);

std::optional<Distances> joined(const Spec& spec) {
  const bool all_of = spec.name == "and";
  std::optional<Distances> joined;
  for (const auto& child : spec.children) {
    const std::optional<Distances> next = distances_of(*child);
    if (!next) return std::nullopt;
    if (!joined) {
      joined = next;
      continue;
    }
    joined->constant = std::max(joined->constant, next->constant);
    joined->sinks = std::max(joined->sinks, next->sinks);
    if (joined->far == next->far)
      joined->visible = all_of ? std::min(joined->visible, next->visible)
                               : std::max(joined->visible, next->visible);
    else if (all_of)
      joined->visible = joined->far ? next->visible : joined->visible;
    joined->far = all_of ? joined->far && next->far : joined->far || next->far;
  }
  return joined;
}

std::optional<Distances> distances_of(const Node& node) {
  const Spec spec = node.spec();
  const auto near = [](std::int64_t distance) {
    distance = std::max<std::int64_t>(distance, 0);
    return Distances{distance, distance, 0, false};
  };
  if (spec.name == "all") return Distances{0, 0, 0, true};
  if (spec.name == "none") return Distances{};
  if (spec.name == "causal") {
    // Keys below q + offset + 1: a negative offset hides the nearest.
    return Distances{0, std::max<std::int64_t>(-argument(spec, "offset"), 0), 0, true};
  }
  if (spec.name == "window") {
    const std::int64_t left = argument(spec, "left");
    return left < 0 ? Distances{0, 0, 0, true} : near(left);
  }
  if (spec.name == "dilated") return near(argument(spec, "window"));
  if (spec.name == "prefix" || spec.name == "sink") {
    Distances first;
    first.sinks = std::max<std::int64_t>(argument(spec, "n"), 0);
    return first;
  }
  if (spec.name == "and" || spec.name == "or" || spec.name == "per_head") return joined(spec);
  if (spec.name == "not") {
    std::optional<Distances> child = distances_of(*spec.children.at(0));
    if (!child) return std::nullopt;
    child->far = !child->far;
    child->visible = child->constant;
    return child;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Reach> reach_of(const Mask& mask) {
  const std::optional<Distances> found = distances_of(mask.node());
  if (!found || found->far) return std::nullopt;
  // First keys come nearer when those behind them are left out: what is said of them must be the
  // same from there on.
  return Reach{found->sinks > 0 ? found->constant : found->visible, found->sinks};
}

}  // namespace stof::mask
