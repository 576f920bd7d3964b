#pragma once
// Where and how a model that is loaded computes.

#include <cstdint>
#include <optional>

#include "stof/tensor.h"

namespace stof {

/// Where a model computes.
enum class Place : std::uint8_t {
  kCpu,
  kCuda,  ///< an NVIDIA GPU; needs the driver, cuBLASLt, and NVRTC or cached kernels
  kAuto,  ///< a GPU where all of that is there and can run the model, else the CPU
};

/// Whether what `stof tune` found for the model on this machine is used.
enum class Tuning {
  kOff,     ///< the fusion rules' choices
  kCached,  ///< the records of the cache folder, and those that come with the library
};

struct LoadOptions {
  Place place = Place::kCpu;
  /// Default: float32 on the CPU (which takes no other); on a GPU float16, or bfloat16 (a wider
  /// range and an eighth of the precision), which generators take by default, as they are trained
  /// in it. kAuto with a 16-bit type means a GPU.
  std::optional<DType> dtype;
  Tuning tuning = Tuning::kCached;
};

}  // namespace stof
