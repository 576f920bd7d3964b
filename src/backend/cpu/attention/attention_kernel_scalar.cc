// clang-format off: the vector level comes first.
#include "backend/cpu/attention/kernel_body.h"
#include "backend/cpu/attention/simd_scalar.h"
// clang-format on

namespace stof::cpu {

const AttentionKernels& attention_kernels_scalar() { return kKernels; }

}  // namespace stof::cpu
