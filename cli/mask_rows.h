#pragma once
// What a query sees.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mask_source.h"

namespace stof::cli {

/// Half-open ranges of the keys that query q sees, ascending and not touching.
using KeyRanges = std::vector<std::pair<std::int64_t, std::int64_t>>;
KeyRanges visible_ranges(const MaskSource& source, std::int64_t b, std::int64_t h, std::int64_t q);

/// "0, 6..9"; "nothing" when empty.
std::string format_ranges(const KeyRanges& ranges);

}  // namespace stof::cli
