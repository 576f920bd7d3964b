#pragma once
// A boolean tensor in device memory as one launch of a block-wise kernel.

#include <string>

#include "backend/cuda/attention/blockwise_pass.h"
#include "stof/cuda_attention.h"

namespace stof::cuda {

/// Reads the tensor on `stream` and waits. Fills facts but for build_ms. `kernel`: a name, or empty
/// for the cheapest.
DeviceBlockwise dense_pass(const AttentionProblem& problem, const TensorView& visible,
                           const std::string& kernel, int alignment, const Device& device,
                           CUstream stream, PlanFacts* facts);

}  // namespace stof::cuda
