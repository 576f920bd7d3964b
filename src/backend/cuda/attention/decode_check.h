#pragma once
// Tensors against the decoding step they were planned for.

#include "stof/cuda_decode.h"

namespace stof::cuda {

/// Throws InvalidArgument, or Unsupported for what only the GPU kernel cannot take, naming the
/// tensor, what was expected and what was got.
void check_decode_tensors(const DecodeProblem& problem, const DecodeTensors& tensors);

}  // namespace stof::cuda
