#include "exec/arena.h"

#include <algorithm>
#include <numeric>

#include "core/bits.h"

namespace stof::exec {

ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes, std::int64_t alignment,
                       std::int64_t guard) {
  const auto padded = [&](std::size_t i) {
    return ceil_div(lifetimes[i].bytes + guard, alignment) * alignment;
  };
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return padded(a) > padded(b); });
  ArenaLayout layout;
  layout.offsets.resize(lifetimes.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (!lifetimes[i].overlaps(lifetimes[other])) continue;
      if (offset + padded(i) <= layout.offsets[other]) break;
      offset = std::max(offset, layout.offsets[other] + padded(other));
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + padded(i));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return layout.offsets[a] < layout.offsets[b];
                                   }),
                  i);
  }
  return layout;
}

}  // namespace stof::exec
