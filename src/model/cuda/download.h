#pragma once
// Results from device memory.

#include <cstdint>

#include "exec/cuda_session.h"
#include "stof/tensor.h"

namespace stof::model {

/// The first `columns` of the result in float32, once it is computed. Throws Unsupported where a
/// value is infinite or none: float16 that overflowed inside shows at the end.
Tensor download_float32(const exec::CudaResult& result, std::int64_t columns);

}  // namespace stof::model
