#pragma once
// Random attention problems and masks for checks on a GPU.

#include "gpu/draw.h"
#include "stof/attention.h"

namespace stof::check {

/// Any shape and type the kernels take, without score modifications but softcap.
AttentionProblem random_problem(Draw& draw);

/// Few head dimensions, since every kernel met is compiled; lengths that the CPU's oracle can
/// follow.
AttentionProblem small_problem(Draw& draw);

/// Buckets of a position bias whose reach is short or beyond all lengths.
PositionBias random_buckets(Draw& draw);

/// A mask of every kind the kernels treat differently.
mask::Mask random_mask(Draw& draw, const AttentionProblem& problem);

}  // namespace stof::check
