#pragma once
// An NVIDIA GPU as a device to tune for: float16 or bfloat16, by src/backend/cuda/segments.

#include <memory>

#include "tune/device.h"

namespace stof::tune {

/// Throws NotFound without driver or GPU.
std::unique_ptr<Device> make_cuda_device(int ordinal = 0);

}  // namespace stof::tune
