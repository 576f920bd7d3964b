// Compiled with this level's flags (src/CMakeLists.txt).
#define STOF_SIMD_AVX2
#include "backend/cpu/attention/kernel_body.h"

namespace stof::cpu {

const AttentionKernels& attention_kernels_avx2() { return kKernels; }

}  // namespace stof::cpu
