#pragma once
// Where values lie in one block of memory: two share bytes only if they never live at once.

#include <cstdint>
#include <vector>

namespace stof::exec {

/// Bytes that are needed from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0, last = 0;

  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  ///< one a lifetime
  std::int64_t bytes = 0;
};

/// Largest first, each at the lowest offset that is free while it lives (Pisarchyk and Lee 2020,
/// arXiv 2001.03288, "greedy by size"). Offsets are multiples of `alignment`; at least `guard`
/// bytes are left unused behind each.
ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes, std::int64_t alignment = 256,
                       std::int64_t guard = 0);

}  // namespace stof::exec
