#pragma once
// How far back the queries of a mask see: what a cache must keep.

#include <cstdint>
#include <optional>

#include "stof/mask.h"

namespace stof::mask {

/// Query q sees no key below q - window but some of the first `sinks`. Keys [first, last) with
/// first >= sinks may be left out of a sequence whose further queries stand at last + window or
/// later, and positions counted without them: the mask says the same of all pairs that are left.
struct Reach {
  std::int64_t window = 0, sinks = 0;

  bool operator==(const Reach&) const = default;
};

/// Of a mask made of causal, window, dilated, prefix and sink by operators, per_head() included; of
/// any other, and where a query sees keys however far behind it, none.
std::optional<Reach> reach_of(const Mask& mask);

}  // namespace stof::mask
