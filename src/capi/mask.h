#pragma once
// The mask handle.

#include "stof/mask.h"
#include "stof/stof.h"

struct stof_mask {
  stof::mask::Mask mask;
};
