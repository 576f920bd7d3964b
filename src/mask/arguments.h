#pragma once
// Checks shared by the factories of masks.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "mask/interval.h"
#include "stof/mask.h"

namespace stof::mask {

/// Throws InvalidArgument such as "chunked(n=0): expected 1 to 1099511627776" unless lo <= value
/// <= kMaxPosition.
inline void check_argument(std::string_view mask, std::string_view argument, std::int64_t value,
                           std::int64_t lo) {
  STOF_CHECK(value >= lo && value <= kMaxPosition, kInvalidArgument, "{}({}={}): expected {} to {}",
             mask, argument, value, lo, kMaxPosition);
}

/// Index of entry `position` (batch entry or head) among `count` given ones, one of which serves
/// all. Throws InvalidArgument when there is none.
inline std::size_t entry_index(std::string_view mask, std::string_view axis, std::int64_t position,
                               std::int64_t count) {
  if (count == 1) return 0;
  STOF_CHECK(position >= 0 && position < count, kInvalidArgument,
             "{}: expected a {} index in [0, {}), got {}", mask, axis, count, position);
  return static_cast<std::size_t>(position);
}

/// The extent of two parts of one expression together: equal, or one of them broadcast.
/// `what` is "batch" or "head". Throws InvalidArgument naming both.
std::int64_t combine_extents(std::string_view what, std::int64_t a, std::int64_t b);

}  // namespace stof::mask
