#include "backend/cpu/cpu_features.h"

#include <cpuid.h>

#include "core/check.h"
#include "core/env.h"

namespace stof::cpu {

const char* to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  throw_error(ErrorCode::kInternal, "vector level {} has no name", static_cast<int>(isa));
}

namespace {

/// Half-precision conversions. Asked of the processor itself: clang 14's builtin has no name for
/// it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

bool cpu_supports(CpuIsa isa) {
  // The builtin also asks the operating system whether it saves the wide registers.
  switch (isa) {
    case CpuIsa::kScalar:
      return true;
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case CpuIsa::kAvx512:
      return cpu_supports(CpuIsa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
  return false;
}

std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512})
    if (cpu_supports(isa)) isas.push_back(isa);
  return isas;
}

CpuIsa selected_isa() {
  const auto name = env_string("STOF_CPU_ISA");
  if (!name) return supported_isas().back();
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (*name != to_string(isa)) continue;
    STOF_CHECK(cpu_supports(isa), kUnsupported,
               "environment variable STOF_CPU_ISA: this machine cannot run {}; the best it can is "
               "{}",
               *name, to_string(supported_isas().back()));
    return isa;
  }
  throw_error(ErrorCode::kInvalidArgument,
              "environment variable STOF_CPU_ISA: expected scalar, avx2 or avx512, got \"{}\"",
              *name);
}

}  // namespace stof::cpu
