#pragma once
// Which vector level the CPU kernels run at.

#include <string>
#include <vector>

namespace stof::cpu {

/// Levels a kernel is compiled for, worst first. kScalar is the compiler's baseline.
enum class CpuIsa { kScalar, kAvx2, kAvx512 };

/// "scalar", "avx2", "avx512".
const char* to_string(CpuIsa isa);

/// True where this processor and operating system can run the level.
bool cpu_supports(CpuIsa isa);

/// Every level this machine can run, worst first; never empty.
std::vector<CpuIsa> supported_isas();

/// STOF_CPU_ISA (scalar, avx2 or avx512) where it is set, else the best level supported. Throws
/// InvalidArgument for an unknown name and Unsupported for a level this machine lacks.
CpuIsa selected_isa();

}  // namespace stof::cpu
