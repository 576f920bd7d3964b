// Compiled with this level's flags (src/CMakeLists.txt); off x86 it is the baseline again, which
// cpu_supports() never selects.
// clang-format off: the vector level comes first.
#if defined(__x86_64__)
#include "backend/cpu/attention/simd_avx512.h"
#else
#include "backend/cpu/attention/simd_scalar.h"
#endif
#include "backend/cpu/attention/kernel_body.h"
// clang-format on

namespace stof::cpu {

const AttentionKernels& attention_kernels_avx512() { return kKernels; }

}  // namespace stof::cpu
