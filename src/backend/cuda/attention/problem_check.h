#pragma once
// What the GPU attention plans take, beyond what every backend checks.

#include "stof/attention.h"

namespace stof::cuda {

/// Throws Unsupported naming the field: dtype, head dimensions, scale; the caller checks lengths.
void check_problem(const AttentionProblem& problem);

/// The same of a problem that is not packed, with its lengths.
void check_dense(const AttentionProblem& problem);

/// Throws Unsupported unless a [b, h, s, d] tensor's address and strides are divisible by
/// `alignment` bytes.
void check_alignment(const TensorView& tensor, const char* name, int alignment);

/// Throws Unsupported naming out or lse where a kernel of that alignment cannot store to it.
void check_outputs(const AttentionTensors& tensors, int alignment);

}  // namespace stof::cuda
