#pragma once
// Which kernels there are for a product of few rows, which of them a GPU can run, and in what order
// to try them.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/problem.h"
#include "codegen/gemm_skinny.h"
#include "fusion/choice.h"

namespace stof::cuda {

inline constexpr const char* kSkinnyGemmFamily = "gemm_skinny";
inline constexpr std::int64_t kSkinnyRows = 64;

/// y = steps(norm(x) W^T). The product's gamma and epsilon are the norm's; normalised rows are
/// rounded to elements.
struct SkinnyProblem {
  GemmProblem product;
  codegen::RowPrologue prologue = codegen::RowPrologue::kNone;

  /// "rms_norm, bfloat16 [8, 768] x [3072, 768]^T, silu, gate"
  std::string describe() const;
};

struct SkinnyGemmCandidate {
  codegen::SkinnyGemmConfig config;
  double predicted_us = 0;  ///< good for an order, not for a promise
};

/// Of every registered kernel that runs the problem on the GPU, the fastest as predicted first.
/// Throws nothing; none where the problem or the GPU is none of the kernels'.
std::vector<SkinnyGemmCandidate> skinny_gemm_candidates(const SkinnyProblem& problem,
                                                        const DeviceFacts& facts);

/// Why the GPU does not run this problem by this kernel; empty where it does.
std::string gemm_refusal(const codegen::SkinnyGemmConfig& config, const SkinnyProblem& problem,
                         const DeviceFacts& facts);

/// Predicted microseconds.
double predict_gemm_us(const SkinnyProblem& problem, const codegen::SkinnyGemmConfig& config,
                       const DeviceFacts& facts);

/// Rows, warps and so on; what the problem says plays no part.
fusion::Choice choice_of(const codegen::SkinnyGemmConfig& config);

/// Inverse, for the problem's steps, norm, K and element types. Throws InvalidArgument naming the
/// parameter that is missing, or the choice and what about it does not fit the problem.
codegen::SkinnyGemmConfig skinny_gemm_config_of(const fusion::Choice& choice,
                                                const SkinnyProblem& problem);

}  // namespace stof::cuda
