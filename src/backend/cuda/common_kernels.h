#pragma once
// The kernels most programs need, to be compiled ahead of their first use.

#include <cstdint>
#include <vector>

#include "jit/compile.h"
#include "stof/dtype.h"

namespace stof::cuda {

/// What to compile ahead.
struct CommonKernels {
  std::vector<std::int64_t> head_dims = {32, 64, 128};
  std::vector<std::int64_t> hidden_sizes = {384, 768, 1024};  ///< of encoders
  std::vector<DType> dtypes = {DType::kFloat16, DType::kBFloat16};
};

/// Attention with and without packed heads, residue order and merging, the kernels that make plans,
/// and the row kernels of encoders, for one full target such as "sm_90a". Throws
/// Unsupported naming a target without kernels. Needs no GPU.
std::vector<jit::CubinRequest> common_kernels(const CommonKernels& wanted,
                                              const std::string& target);

}  // namespace stof::cuda
