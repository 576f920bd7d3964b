#pragma once
// Simd of the vector level a kernel file asks for by defining STOF_SIMD_AVX2 or STOF_SIMD_AVX512.
// Off x86 every level is the baseline, and cpu_supports() selects no other.

#if defined(__x86_64__) && defined(STOF_SIMD_AVX512)
#if !defined(__AVX512F__) || !defined(__AVX512DQ__)
#error "compile with the AVX-512 flags of src/CMakeLists.txt"
#endif
#include "backend/cpu/attention/simd_avx512.h"
#elif defined(__x86_64__) && defined(STOF_SIMD_AVX2)
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile with the AVX2 flags of src/CMakeLists.txt"
#endif
#include "backend/cpu/attention/simd_avx2.h"
#else
#include "backend/cpu/attention/simd_scalar.h"
#endif
