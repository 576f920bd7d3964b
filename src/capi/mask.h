#pragma once
// The mask handle.

#include "stof/mask.h"
#include "stof/stof.h"

struct stof_mask {
  stof::mask::Mask mask;
};

namespace stof::capi {

/// Throws what Mask::bind() throws.
mask::Mask bound_to(const stof_mask* mask, const stof_score_shape* shape);

}  // namespace stof::capi
