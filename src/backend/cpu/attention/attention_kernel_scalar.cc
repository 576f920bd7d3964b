#include "backend/cpu/attention/kernel_body.h"

namespace stof::cpu {

const AttentionKernels& attention_kernels_scalar() { return kKernels; }

}  // namespace stof::cpu
