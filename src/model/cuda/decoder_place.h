#pragma once
// Decoders on an NVIDIA GPU.

#include <memory>

#include "model/decoder.h"

namespace stof::model {

/// Uploads the weights and prepares a step of one token. `model` outlives the place. `dtype`:
/// float16 or bfloat16. Throws Unsupported naming what of the model the GPU's kernels do not take,
/// NotFound naming what of a GPU is missing, and what CudaWeights and CudaSession throw.
std::unique_ptr<const DecoderPlace> place_decoder_on_gpu(const DecoderModel& model, DType dtype);

}  // namespace stof::model
