#pragma once
// Times launches on the GPU.

#include <functional>

#include "backend/cuda/device.h"

namespace stof::cuda {

/// Median microseconds of one call, from a graph of `calls` calls replayed `repeats` times after a
/// warm-up. `call` launches on the stream it is given. The device must be in use.
double measure_us(const std::function<void(CUstream)>& call, int calls, int repeats);

}  // namespace stof::cuda
