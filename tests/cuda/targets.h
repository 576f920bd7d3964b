#pragma once
// GPUs that plans and kernels are made for where none is there.

#include "backend/cuda/attention/candidates.h"

namespace stof::cuda {

inline constexpr KernelTarget kH200{90, 132, 16}, kA100{80, 108, 16}, kAda{89, 128, 16};

}  // namespace stof::cuda
