#pragma once
// How much memory the block form of a mask will take, told before it is built.

#include "mask_source.h"

namespace stof::cli {

/// Bytes, from a sample of the tiles: good to a factor of about two.
double estimate_block_bytes(const MaskSource& source);

/// Throws InvalidArgument naming --seq when the block form would not fit in half of this machine's
/// memory. Without it a mask of random elements over a million tokens would drive the machine into
/// the ground before anybody could say why.
void require_block_form_fits(const MaskSource& source);

}  // namespace stof::cli
