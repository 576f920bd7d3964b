#pragma once
// Text of the wgmma wrappers a kernel needs; one function per shape and operand source.

#include <string>

#include "stof/dtype.h"

namespace stof::codegen {

/// scores[n/2] (+)= Q K^T, m64 x n x k16: K K-major in shared memory, Q likewise or in registers.
std::string emit_wgmma_scores(DType element, int n, bool query_in_registers);

/// out[n/2] += P V: P in registers, V MN-major in shared memory, m64 x n x k16.
std::string emit_wgmma_output(DType element, int n);

/// out[n/2] (+)= A B^T, m64 x n x k16: `wgmma_product(out, a, b, accumulate)`, both K-major in
/// shared memory.
std::string emit_wgmma_product(DType element, int n);

}  // namespace stof::codegen
