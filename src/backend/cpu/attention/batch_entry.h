#pragma once
// One batch entry of a mask, seen as a mask of its own: what a packed sequence is planned with.

#include <memory>

#include "stof/mask.h"

namespace stof::cpu {

/// `mask` resolved for the lengths in `shape`, whose batch counts the entries; visible(b, ...) of
/// the result is visible(entry, ...) of that. Arrays are cut to the lengths: entries are as long as
/// the longest sequence. Throws InvalidArgument where the batch does not fit.
mask::Mask batch_entry(const mask::Mask& mask, const mask::ScoreShape& shape,
                       mask::Alignment alignment, std::int64_t entry);

}  // namespace stof::cpu
