#pragma once
// Configurations of the Hopper products as choices that are stored and compared by content.

#include "backend/cuda/gemm/problem.h"
#include "fusion/choice.h"

namespace stof::cuda {

inline constexpr const char* kSm90GemmFamily = "gemm_sm90";

/// Schedule, tile, stages and so on; what the problem says plays no part.
fusion::Choice choice_of(const codegen::GemmConfig& config);

/// Inverse, for the problem's steps and element types. Throws InvalidArgument naming the parameter
/// that is missing, or the choice and what about it does not fit the problem.
codegen::GemmConfig gemm_config_of(const fusion::Choice& choice, const GemmProblem& problem);

}  // namespace stof::cuda
