#pragma once
// Which mma.sync kernels there are for a product, which of them a GPU can run, and in what order to
// try them.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/problem.h"
#include "codegen/gemm_sm80.h"
#include "fusion/choice.h"

namespace stof::cuda {

inline constexpr const char* kSm80GemmFamily = "gemm_sm80";

struct Sm80GemmCandidate {
  codegen::Sm80GemmConfig config;
  double predicted_us = 0;  ///< good for an order, not for a promise
};

/// Of every registered kernel that runs the problem on the GPU, the fastest as predicted first.
/// Throws nothing; none where the problem or the GPU is none of the kernels'.
std::vector<Sm80GemmCandidate> sm80_gemm_candidates(const GemmProblem& problem,
                                                    const DeviceFacts& facts);

/// Registered kernels for these steps that the GPU holds, whatever the problem's size.
std::vector<codegen::Sm80GemmConfig> registered_sm80_gemm_configs(const GemmProblem& problem,
                                                                  const DeviceFacts& facts);

/// Why the GPU does not run this problem by this kernel; empty where it does.
std::string gemm_refusal(const codegen::Sm80GemmConfig& config, const GemmProblem& problem,
                         const DeviceFacts& facts);

/// Predicted microseconds.
double predict_gemm_us(const GemmProblem& problem, const codegen::Sm80GemmConfig& config,
                       const DeviceFacts& facts);

/// Tile, warps, stages and so on; what the problem says plays no part.
fusion::Choice choice_of(const codegen::Sm80GemmConfig& config);

/// Inverse, for the problem's steps and element types. Throws InvalidArgument naming the parameter
/// that is missing, or the choice and what about it does not fit the problem.
codegen::Sm80GemmConfig sm80_gemm_config_of(const fusion::Choice& choice,
                                            const GemmProblem& problem);

}  // namespace stof::cuda
