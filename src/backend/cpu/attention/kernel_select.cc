#include "backend/cpu/attention/kernel.h"
#include "core/check.h"

namespace stof::cpu {

const AttentionKernels& attention_kernels(CpuIsa isa) {
  STOF_CHECK(cpu_supports(isa), kUnsupported,
             "this machine cannot run {} kernels; the best it can is {}", to_string(isa),
             to_string(supported_isas().back()));
  switch (isa) {
    case CpuIsa::kScalar:
      return attention_kernels_scalar();
    case CpuIsa::kAvx2:
      return attention_kernels_avx2();
    case CpuIsa::kAvx512:
      return attention_kernels_avx512();
  }
  throw_error(ErrorCode::kInternal, "vector level {} has no kernels", static_cast<int>(isa));
}

}  // namespace stof::cpu
