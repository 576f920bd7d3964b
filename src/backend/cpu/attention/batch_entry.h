#pragma once
// One batch entry of a bound mask, seen as a mask of its own: what a packed sequence is planned
// with.

#include <memory>

#include "stof/mask.h"

namespace stof::cpu {

/// visible(b, ...) of the result is visible(entry, ...) of `bound`.
mask::Mask batch_entry(const mask::Mask& bound, std::int64_t entry);

}  // namespace stof::cpu
