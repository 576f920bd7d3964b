#pragma once
// This machine's processor as a device to tune for: float32, by src/backend/cpu/segments.

#include <memory>

#include "tune/device.h"

namespace stof::tune {

/// num_threads = 0: all cores OpenMP gives.
std::unique_ptr<Device> make_cpu_device(int num_threads);

}  // namespace stof::tune
